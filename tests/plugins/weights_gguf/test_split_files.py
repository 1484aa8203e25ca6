"""A model that is split into several GGUF files is served by its first part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from llmfw.core.base.errors import ModelError
from llmfw.core.plugin.model_name import resolve_model

pytest.importorskip("gguf")

from llmfw.plugins.weights_gguf import gguf_loader
from llmfw.plugins.weights_gguf.convert_metadata import write_described
from llmfw.plugins.weights_gguf.served_files import checked_header

from ...doubles.gguf_file import VOCAB_SIZE, reads_vocabularies, tiny_model, write_gguf
from .test_served_models import REGISTRY, loaded

FIRST = "m-00001-of-00003.gguf"
SECOND = "m-00002-of-00003.gguf"


@pytest.fixture(autouse=True)
def _converted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_loader, "convert", write_described)


def write_parts(folder: Path, kind: str = "Q8_0", tensors_per_part: int = 8) -> torch.nn.Module:
    """Write a model of 21 tensors in three parts, the matrix after the last layer in another than the first."""
    model: torch.nn.Module = tiny_model("llama")
    write_gguf(folder / "m.gguf", model, kind, tensors_per_part=tensors_per_part)
    assert len(list(folder.glob("m-*.gguf"))) == -(-21 // tensors_per_part)
    return model


@reads_vocabularies
def test_logits_of_split_files_are_equal(tmp_path: Path) -> None:
    model = write_parts(tmp_path)
    tokens = torch.arange(1, 61)[None] * 7 % VOCAB_SIZE
    with torch.inference_mode():
        assert torch.equal(loaded(tmp_path / FIRST)(tokens).logits, model(tokens).logits)


@reads_vocabularies
def test_the_weight_version_depends_on_all_parts(tmp_path: Path) -> None:
    write_parts(tmp_path)
    folder = Path(resolve_model(str(tmp_path / FIRST), REGISTRY).path)
    loader = gguf_loader.GGUFLoader(folder, gguf_loader.GGUFLoader.Options())
    assert loader.files() == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert all((folder / name).is_symlink() for name in loader.files())
    (tmp_path / SECOND).unlink()
    with pytest.raises(ModelError, match=rf"and {SECOND} is not beside it"):
        checked_header(folder / FIRST)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    write_parts(tmp_path)
    checked_header(tmp_path / FIRST)
    (tmp_path / SECOND).unlink()
    with pytest.raises(ModelError, match=rf"part 1 of 3 of a model, and {SECOND} is not beside it"):
        checked_header(tmp_path / FIRST)


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    write_parts(tmp_path)
    with pytest.raises(ModelError, match=rf"part 2 of 3 of a model; give the first part, {FIRST}"):
        checked_header(tmp_path / SECOND)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    write_parts(tmp_path)
    part = tmp_path / SECOND
    part.write_bytes(part.read_bytes()[:-200])
    with pytest.raises(ModelError, match=rf"{SECOND} .* download it again"):
        checked_header(tmp_path / FIRST)


def test_mixed_parts_are_refused_by_name(tmp_path: Path) -> None:
    """Of splits with other sizes, of the same part twice, and of parts with other numbers."""
    write_parts(tmp_path)
    other, halves = tmp_path / "other", tmp_path / "halves"
    other.mkdir()
    halves.mkdir()
    write_parts(other, tensors_per_part=7)
    shutil.copy(other / SECOND, tmp_path)
    with pytest.raises(ModelError, match=rf"{SECOND} has the tensor .* as a part before it has"):
        checked_header(tmp_path / FIRST)
    shutil.copy(tmp_path / "m-00003-of-00003.gguf", tmp_path / SECOND)
    with pytest.raises(ModelError, match=rf"{SECOND} has the split.no 2 and the split.count 3"):
        checked_header(tmp_path / FIRST)
    write_parts(halves, tensors_per_part=11)
    shutil.copy(halves / "m-00002-of-00002.gguf", tmp_path / SECOND)
    with pytest.raises(ModelError, match=r"the split.count 2; by its name, they are 1 and 3"):
        checked_header(tmp_path / FIRST)


def test_parts_without_numbers_are_refused(tmp_path: Path) -> None:
    write_parts(tmp_path)
    (tmp_path / FIRST).rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match=r"one of 3 parts .* such as NAME-00001-of-00003\.gguf"):
        checked_header(tmp_path / "renamed.gguf")
