"""What observers and middleware cost the API process: 200 streams of chat from an engine that does nothing.

    .venv/bin/python docs/benchmarks/plugin_cost.py --before FOLDER

Servers take turns: one without plugins; one with the default observer (request-metrics), whose /metrics is read once a second;
one with five observers (the request log, and four that count); one with two middleware (cors and gzip); one with both; and, with
`--before`, an earlier commit. Counted is the CPU time of the whole API process. Observers and middleware do not run in the engine's
process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from servers import Server
from streaming_cost import HERE, measure

OBSERVERS = ["counter-1", "counter-2", "counter-3", "counter-4"]


def main() -> None:
    """Measure in turns, and print each server's medians and the ratio of each turn to the server without plugins."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        listed = servers(Path(folder), options)
        turns: dict[str, list[dict[str, float]]] = {server.name: [] for server in listed}
        for turn in range(options.runs):
            for server in listed if turn % 2 else reversed(listed):
                with scraped(server) if server.name == "request-metrics" else contextlib.nullcontext():
                    turns[server.name].append(measure(server, True, options))
                print(server.name, json.dumps(turns[server.name][-1]), flush=True)
    for name, runs in turns.items():
        print(f"{name}: {described(runs, turns['no plugins'])}")
    if options.out:
        options.out.write_text(json.dumps(turns, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=400, help="of each stream")
    parser.add_argument("--step", type=float, default=0.05, help="seconds between two tokens of a stream")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--before", type=Path, help="checkout of an earlier commit")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def servers(folder: Path, options: argparse.Namespace) -> list[Server]:
    """Return the servers.

    Args:
        folder: empty folder, for the plugin and the request log.
        options: of the command line.
    """
    write_plugin(folder)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    log = {"observer.request-log.path": f"{folder}/log"}
    origins = {"middleware.cors.origins": ["https://a.example"]}
    observers = ",".join(["request-log", *OBSERVERS])
    chosen = {
        "five observers": {"observers": observers, "options": log},
        "two middleware": {"observers": "none", "middleware": "cors,gzip", "options": origins},
        "five observers, two middleware": {
            "observers": observers,
            "middleware": "cors,gzip",
            "options": log | origins,
        },
    }
    none = {"SERVER_SETTINGS": json.dumps({"observers": "none"})}
    found = [
        Server("no plugins", command(HERE, options.step), environment=none),
        Server("request-metrics", command(HERE, options.step)),
    ]
    for name, settings in chosen.items():
        environment = {"SERVER_SETTINGS": json.dumps(settings), "PYTHONPATH": path}
        found.append(Server(name, command(HERE, options.step), environment=environment))
    if options.before:
        stub = command(options.before / "docs" / "benchmarks", options.step)
        found.append(Server("before", stub, environment={"PYTHONPATH": str(options.before / ".links")}))
    return found


@contextlib.contextmanager
def scraped(server: Server) -> Iterator[None]:
    """Read a server's /metrics once a second until the block ends, as soon as it answers."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(1):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{server.url}/metrics", timeout=10).read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def command(folder: Path, step: float) -> list[str]:
    """Return the command of a server whose stub is in a folder."""
    return [sys.executable, str(folder / "stub_llmfw.py"), "{folder}", "{port}", "1", str(step)]


def write_plugin(folder: Path) -> None:
    """Write a plugin of four observers, each of which counts requests and tokens of each tenant."""
    registered = "".join(f"    register({name!r}, 'counting_observers:Counter')\n" for name in OBSERVERS)
    (folder / "counting_observers.py").write_text(
        "from llmfw.core import RequestEnded, RequestObserver, hookimpl\n\n\n"
        "class Counter(RequestObserver):\n"
        "    def __init__(self, options):\n"
        "        super().__init__(options)\n"
        "        self.counts = {}\n\n"
        "    def observe(self, events):\n"
        "        for event in events:\n"
        "            if isinstance(event, RequestEnded):\n"
        "                requests, tokens = self.counts.get(event.started.tenant, (0, 0))\n"
        "                self.counts[event.started.tenant] = (requests + 1, tokens + event.output_tokens)\n\n\n"
        f"@hookimpl\ndef register_observers(register):\n{registered}"
    )
    metadata = folder / "counting_observers-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-observers\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[llmfw]\ncounting-observers = counting_observers\n")


def described(runs: list[dict[str, float]], plain: list[dict[str, float]]) -> str:
    """Return a server's medians, and its ratios to the server without plugins, turn by turn."""
    texts = []
    for figure, unit in (("us_per_token", "µs a token"), ("us_per_request", "µs a request")):
        ratios = sorted(run[figure] / other[figure] for run, other in zip(runs, plain, strict=True))
        median = statistics.median(run[figure] for run in runs)
        texts.append(
            f"{median:.1f} {unit}, ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    return "; ".join(texts)


if __name__ == "__main__":
    main()
