"""The index of a checkpoint in several files: what is wrong with it is one line, and it names no files of others."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core.model.files.shards import is_inside

from ...engine.generation.tiny_models import save_random_model
from ..test_checked_load import load, refusal

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two files, beside one of another."""
    folder = save_random_model(tmp_path / "model", "LlamaConfig", {})
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(tmp_path / "other.safetensors")
    names = sorted(tensors)
    halves = {FIRST: names[: len(names) // 2], SECOND: names[len(names) // 2 :]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, part in halves.items() for name in part}
    write_index(folder, {"metadata": {}, "weight_map": weight_map})
    return folder


def write_index(folder: Path, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "model.safetensors.index.json").write_text(text)


def in_one_file(folder: Path, name: object) -> None:
    """Have the index say that each tensor is in a file."""
    tensors = [name for file in (FIRST, SECOND) for name in load_file(folder / file)]
    write_index(folder, {"metadata": {}, "weight_map": dict.fromkeys(tensors, name)})


def test_a_stale_whole_file_is_refused(folder: Path) -> None:
    """transformers reads the whole file, and the shards with the index not at all."""
    name, whole = "model.norm.weight", folder / "model.safetensors"
    tensors = load_file(folder.parent / "other.safetensors")
    save_file(tensors, whole, metadata={"format": "pt"})
    load(folder)
    save_file(tensors | {name: tensors[name] + 1}, whole, metadata={"format": "pt"})
    assert f"{name} is in {whole} and, with other numbers, in {folder}/model-0000" in refusal(folder)
    save_file({k: v for k, v in tensors.items() if k != name}, whole, metadata={"format": "pt"})
    assert f"and not in {whole}, which would be read; keep the right files" in refusal(folder)


def test_an_unused_index_is_ignored(folder: Path) -> None:
    (folder.parent / "other.safetensors").rename(folder / "model.safetensors")
    for name in (FIRST, SECOND):
        (folder / name).unlink()
    load(folder)


def test_a_correct_index_is_accepted(folder: Path) -> None:
    load(folder)


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "a/../../other.safetensors", "/etc/passwd", "a\0b", ".", "", 3, None]
)
def test_a_shard_outside_the_folder_is_refused(folder: Path, name: object) -> None:
    in_one_file(folder, name)
    assert "it has to name a file of the model's folder" in refusal(folder)


def test_an_absolute_shard_is_refused(folder: Path) -> None:
    in_one_file(folder, str(folder.parent / "other.safetensors"))
    assert "it has to name a file of the model's folder" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "index.json cannot be read: "),
        ("[]", "index.json holds a list; it must hold a JSON object"),
        ({"metadata": {}}, "has no weight_map"),
        ({"metadata": {}, "weight_map": []}, "has no weight_map"),
        ({"metadata": {}, "weight_map": {}}, "has no weight_map"),
        ({"weight_map": {"a": FIRST}}, "has no metadata"),
    ],
)
def test_a_broken_index_is_one_line(folder: Path, content: object, expected: str) -> None:
    write_index(folder, content)
    assert expected in refusal(folder)


def test_missing_shards_are_named(folder: Path) -> None:
    (folder / SECOND).unlink()
    assert f"lacks {SECOND} of the 2 files that model.safetensors.index.json names" in refusal(folder)


def test_duplicate_tensors_must_be_equal(folder: Path) -> None:
    second, (name, tensor) = load_file(folder / SECOND), next(iter(load_file(folder / FIRST).items()))
    save_file(second | {name: tensor}, folder / SECOND, metadata={"format": "pt"})
    load(folder)
    save_file(second | {name: tensor + 1}, folder / SECOND, metadata={"format": "pt"})
    assert f"{name} is in {folder / FIRST} and, with other numbers, in {folder / SECOND}" in refusal(folder)


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self._file}",)


@pytest.mark.parametrize("save", [torch.save, lambda state, file: file.write_bytes(pickle.dumps(state, 2))])
def test_a_pickle_with_code_is_named(tmp_path: Path, save: Callable[[Any, Path], None]) -> None:
    folder = save_random_model(tmp_path / "model", "LlamaConfig", {})
    (folder / "model.safetensors").unlink()
    save({"a": Command(tmp_path / "was_run")}, folder / "pytorch_model.bin")
    assert "its .bin files would call posix.system" in refusal(folder)
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 9, [1, 2], torch.zeros(3), {1: torch.zeros(3)}])
def test_a_pickle_without_named_tensors_is_refused(tmp_path: Path, content: Any) -> None:
    folder = save_random_model(tmp_path, "LlamaConfig", {})
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    assert "in place of tensors by name" in (text := refusal(folder)) or "damaged, or holds other" in text


def test_names_must_stay_inside_the_folder() -> None:
    assert all(map(is_inside, ("model.safetensors", "1_Pooling", "a/b..c")))
    assert not any(map(is_inside, ("..", "a/..", "..\\x", "/x", "a/../../b")))
