"""Takes the picture of the page in the README: `python -m tests.plugins.page.picture docs/page.png`. Needs Chromium."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from ...doubles.browser import Tab, browser
from ...doubles.serving import Served
from .servers import demo_server

SIZE = (1440, 900)
NUM_CLIENTS = 16
WARM_S = 14.0
MAX_BYTES = 200_000
SYSTEMS = (
    "You are a helpful assistant who answers in few words about geography and history. " * 3,
    "You are a careful clerk who sorts letters by their first word and their sender. " * 4,
)


def work(served: Served, ends: threading.Event, seed: int) -> None:
    """Send one request after the other."""
    draw = random.Random(seed)
    while not ends.is_set():
        words = " ".join(draw.choice(("river", "king", "harbor", "train", "moon")) for _ in range(40))
        messages = [
            {"role": "system", "content": draw.choice(SYSTEMS)},
            {"role": "user", "content": f"Tell me of this: {words[: draw.randrange(20, 200)]}"},
        ]
        user = draw.choice(("ann", "bob", "eve"))
        fields = {"max_tokens": draw.randrange(20, 160), "ignore_eos": True, "user": user, "seed": seed}
        served.post("/v1/chat/completions", {"messages": messages, **fields})
        time.sleep(draw.random() * 0.2)


def take(path: Path) -> None:
    """Write a picture of the view Watch, while a few clients keep the demo model busy."""
    ends = threading.Event()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        demo_server(max_running_requests=10, max_total_tokens=6000) as served,
        browser(Path(folder)) as pipes,
    ):
        clients = [threading.Thread(target=work, args=(served, ends, seed)) for seed in range(NUM_CLIENTS)]
        for client in clients:
            client.start()
        try:
            tab = Tab(pipes, SIZE)
            tab.open(f"{served.url}/#watch")
            time.sleep(WARM_S)
            tab.screenshot(path)
        finally:
            ends.set()
            for client in clients:
                client.join()
    size = path.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"{path} has {size} bytes; the most is {MAX_BYTES}")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
