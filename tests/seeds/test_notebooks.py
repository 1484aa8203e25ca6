"""Every cell of the seeds' notebooks runs against `llmfw serve`, with only the address and the model's name changed.

After a notebook's last cell its batches are looked at once more: each has ended as it should, with every line in one
of its files.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ..crash.server import ServerProcess, echo_server
from ..length import LENGTH
from .notebook import run_cells
from .stand_ins import sglang_modules

NOTEBOOKS = Path(__file__).parent / "notebooks"
SMALL_BATCHES = {2: "completed", 20: "completed", 5000: "cancelled"}
LONG_BATCHES = {2: "completed", 100: "completed", 500: "cancelled"}
BATCHES = {
    "2024_10_27": LONG_BATCHES,
    "2024_10_28": LONG_BATCHES,
    "2024_11_02": LONG_BATCHES,
    "2025_02_19": SMALL_BATCHES,
    "2025_05_22": SMALL_BATCHES,
}
"""For each notebook the sizes of its batches, and how they end."""
QUICK = ("2025_05_22",)
"""What `make test` runs: each notebook waits for its batches for ten seconds."""
MODEL = "echo" if LENGTH == "short" else "demo"
"""What is served: cells depend on the server, and only the batch that is cancelled on a model that takes its time."""
THINKS = "{% if enable_thinking %}<think>Hm.</think>{% endif %}{{ messages[-1].content }}"
"""A chat template that makes the echo engine think, if asked to, and answer with the last message's text."""
MODELS = ("meta-llama/Meta-Llama-3.1-8B-Instruct", "qwen/qwen2.5-0.5b-instruct", "QwQ/Qwen3-32B-250415")
TIMEOUT_S = 300.0
SHORTER_S = {3: 0.3, 10: 1.0}
"""What the notebooks sleep between two looks at a batch, and before the first, and how long they sleep here."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    if MODEL == "echo":
        (template := folder / "thinks.jinja").write_text(THINKS)
        made = echo_server(folder, "--chat-template", str(template), "--reasoning-parser", "qwen3")
    else:
        # On a GPU the demo model would be through with a batch before a notebook cancels it.
        made = ServerProcess(folder, "--device", "cpu")
    with made as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
def at_home(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give notebooks a folder, SGLang's modules, and shorter sleeps that end."""
    real_sleep, deadline = time.sleep, time.monotonic() + TIMEOUT_S

    def sleep(seconds: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the notebook has run for {TIMEOUT_S:g} s")
        real_sleep(SHORTER_S.get(seconds, seconds))

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.chdir(tmp_path)
    for name, module in sglang_modules(server).items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("at_home")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # notebooks do not close their clients
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in BATCHES]
)
def test_every_notebook_runs_and_completes_its_batches(
    name: str, server: ServerProcess, sdk: openai.OpenAI
) -> None:
    changes = {"http://127.0.0.1:30000": server.url, "http://localhost:30000": server.url}
    changes |= dict.fromkeys(MODELS, MODEL)
    earlier = {batch.id for batch in sdk.batches.list()}
    run_cells(NOTEBOOKS / f"{name}.py", changes)
    made = [ended(sdk, batch.id) for batch in sdk.batches.list() if batch.id not in earlier]
    assert {num_lines(batch): batch.status for batch in made} == BATCHES[name]
    for batch in made:
        if num_lines(batch) > 2:  # of this one the notebook has deleted the output
            expected = {f"request-{i}" for i in range(num_lines(batch))}
            assert custom_ids(sdk, batch) == Counter(expected)


def test_no_notebook_is_omitted() -> None:
    assert {path.stem for path in NOTEBOOKS.iterdir()} == set(BATCHES)


def num_lines(batch: openai.types.Batch) -> int:
    assert batch.request_counts is not None
    return batch.request_counts.total


def ended(sdk: openai.OpenAI, batch_id: str) -> openai.types.Batch:
    """Wait for the end of a batch."""
    batch = sdk.batches.retrieve(batch_id)
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.3)
        batch = sdk.batches.retrieve(batch_id)
    return batch


def custom_ids(sdk: openai.OpenAI, batch: openai.types.Batch) -> Counter[str]:
    """Return how often each custom_id is in a batch's files."""
    found: Counter[str] = Counter()
    for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
        found.update(json.loads(line)["custom_id"] for line in sdk.files.content(file_id).iter_lines())
    return found
