"""Other weights have another version, wherever the model's folder is."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from llmfw.core.model.weights.weight_version import weight_version


def model(folder: Path, name: str = "w", value: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({name: np.full((300, 300), value, np.float32)}, folder / "model.safetensors")
    return folder


def test_the_folder_s_name_does_not_count(tmp_path: Path) -> None:
    first = model(tmp_path / "a")
    shutil.copytree(first, tmp_path / "b")
    assert weight_version(str(first)) == weight_version(str(tmp_path / "b")) != ""


@pytest.mark.parametrize("change", [{"name": "v"}, {"value": 2.0}])
def test_other_names_or_numbers_change_the_version(tmp_path: Path, change: dict[str, object]) -> None:
    before = weight_version(str(model(tmp_path)))
    assert weight_version(str(model(tmp_path, **change))) != before  # type: ignore[arg-type]


def test_a_second_file_changes_the_version(tmp_path: Path) -> None:
    before = weight_version(str(model(tmp_path)))
    (tmp_path / "more.bin").write_bytes(b"")
    assert weight_version(str(tmp_path)) != before


def test_unread_weights_have_no_version(tmp_path: Path) -> None:
    assert weight_version(str(tmp_path)) == ""
    assert weight_version(str(model(tmp_path)), "dummy") == "dummy"
