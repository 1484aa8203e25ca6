"""How notebooks are read and run."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from .notebook import read_cells, run_cells


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "notebook.py"
    path.write_text("# Where it is from.\n\n# %% In [1]\n\nx = 'here'\n\n# %% In [None]\n\ny = x + 1\n")
    return path


def test_cells_are_read_in_order_with_names(notebook: Path) -> None:
    cells = list(read_cells(notebook))
    assert [(cell.name, cell.source.strip()) for cell in cells] == [
        ("In [1]", "x = 'here'"),
        ("In [None]", "y = x + 1"),
    ]


def test_cells_share_their_names_and_texts_are_replaced(notebook: Path) -> None:
    assert run_cells(notebook, {"'here'": "1"})["y"] == 2


def test_a_failing_cell_is_named_with_its_line(notebook: Path) -> None:
    with pytest.raises(TypeError) as failed:
        run_cells(notebook, {})
    assert failed.value.__notes__ == ["in cell In [None] of notebook.py"]
    assert traceback.extract_tb(failed.tb)[-1].lineno == 9
