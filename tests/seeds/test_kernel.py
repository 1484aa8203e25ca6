"""The seeds' notebooks run in a real Jupyter kernel, whose first cell starts the server by `llmfw.api.launch.server.Server`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import openai
import pytest

from ..crash.server import free_port
from ..length import also
from .notebook import read_cells
from .test_notebooks import BATCHES, MODELS, NOTEBOOKS, SHORTER_S, TIMEOUT_S, custom_ids, ended, num_lines

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,  # a kernel, a server with the demo model, and batches
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

ROOT = Path(__file__).parents[2]
FIRST = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from llmfw.api.launch.server import Server
from tests.seeds.stand_ins import starting_modules

started_server = Server("demo", port=PORT, device="cpu")
sys.modules.update(starting_modules(started_server))
real_sleep = time.sleep
time.sleep = lambda seconds: real_sleep({SHORTER_S!r}.get(seconds, seconds))
"""
"""What the kernel runs before a notebook's cells."""


class Kernel:
    """A kernel in which cells are run, one after the other, as Jupyter does.

    Args:
        folder: its working directory.
    """

    def __init__(self, folder: Path) -> None:
        self._notebook = nbformat.v4.new_notebook()
        resources = {"metadata": {"path": str(folder)}}
        self._client = nbclient.NotebookClient(
            self._notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources
        )

    def __enter__(self) -> Self:
        self._running = self._client.setup_kernel()
        self._running.__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        self._running.__exit__(*why)

    def run(self, source: str) -> str:
        """Run a cell, and return what it has written to standard output.

        Raises:
            CellExecutionError: the cell raised an exception.
        """
        cell = nbformat.v4.new_code_cell(source)
        self._notebook.cells.append(cell)
        self._client.execute_cell(cell, len(self._notebook.cells) - 1)
        return "".join(
            each["text"] for each in cell.outputs if each.output_type == "stream" and each.name == "stdout"
        )


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with Kernel(tmp_path) as kernel:
        yield kernel


@pytest.mark.parametrize("name", ["2025_05_22", *also(sorted(BATCHES.keys() - {"2025_05_22"}))])
def test_every_notebook_runs_in_a_jupyter_kernel(name: str, kernel: Kernel) -> None:
    """The older ones name a port, which is replaced by a free one; the newer ones read it of what they start."""
    takes_any = "launch_server_cmd" in (NOTEBOOKS / f"{name}.py").read_text()
    port = 0 if takes_any else free_port()
    changes = dict.fromkeys(MODELS, "demo") | {":30000": f":{port}"}
    kernel.run(FIRST.replace("PORT", str(port)))
    for cell in read_cells(NOTEBOOKS / f"{name}.py"):
        kernel.run(cell.changed(changes))
    url = kernel.run("print(started_server.base_url)").strip()
    with openai.OpenAI(base_url=url, api_key="None", max_retries=0) as sdk:
        made = [ended(sdk, batch.id) for batch in sdk.batches.list()]
        assert {num_lines(batch): batch.status for batch in made} == BATCHES[name]
        for batch in made:
            if num_lines(batch) > 2:  # of this one the notebook has deleted the output
                assert sum(custom_ids(sdk, batch).values()) == num_lines(batch)
    assert kernel.run("print(started_server.terminate())") == "0\n"


def test_a_failing_cell_is_an_error(kernel: Kernel) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        kernel.run("1 / 0")
