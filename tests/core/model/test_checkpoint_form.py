"""Which checkpoints may take the place of a served one: those that differ in the values of their weights alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core.base.errors import ModelError
from llmfw.core.model.files.checkpoint_form import ADAPTER_FILES, CheckpointForm
from llmfw.plugins.model_demo.source import DemoModel


@pytest.fixture(scope="module")
def form() -> CheckpointForm:
    return CheckpointForm.of(Path(DemoModel().folder()))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    shutil.copytree(DemoModel().folder(), folder)
    return folder


def edit(folder: Path, name: str, **changes: object) -> None:
    content = json.loads((folder / name).read_text()) | changes
    (folder / name).write_text(json.dumps(content, indent=5))


def with_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_other_values_are_no_difference(form: CheckpointForm, other: Path) -> None:
    with_tensors(other, lambda tensors: [each.mul_(2) for each in tensors.values()] and None)
    edit(other, "config.json", transformers_version="9", _name_or_path="/elsewhere")
    assert form.difference(CheckpointForm.of(other)) == ""


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("config.json", {"num_attention_heads": 1}, "its num_attention_heads is 1, and that of the served"),
        ("config.json", {"quantization_config": {"bits": 4}}, 'its quantization is {"bits": 4}'),
        ("config.json", {"dtype": "float64", "torch_dtype": "float64"}, "its dtype is"),
        ("tokenizer.json", {"version": "2.0"}, "its tokenizer.json differs"),
    ],
)
def test_other_settings_are_named(
    form: CheckpointForm, other: Path, file: str, changes: dict[str, object], said: str
) -> None:
    edit(other, file, **changes)
    assert form.difference(CheckpointForm.of(other)).startswith(said)


def test_a_missing_tokenizer_is_named(form: CheckpointForm, other: Path) -> None:
    (other / "tokenizer.json").unlink()
    assert form.difference(CheckpointForm.of(other)).startswith("its tokenizer.json is missing")


def _drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[min(tensors)]


def _reshape(tensors: dict[str, torch.Tensor]) -> None:
    name = min(tensors)
    tensors[name] = tensors[name].unsqueeze(0).contiguous()


def _retype(tensors: dict[str, torch.Tensor]) -> None:
    name = min(tensors)
    tensors[name] = tensors[name].double()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_drop, "it lacks 1 tensors"),
        (lambda tensors: tensors.update(extra=torch.ones(2)), "it has 1 tensors more, such as extra"),
        (_reshape, "[1, "),
        (_retype, "is F64 ["),
    ],
)
def test_other_tensors_are_named(
    form: CheckpointForm, other: Path, change: Callable[[dict[str, torch.Tensor]], None], said: str
) -> None:
    with_tensors(other, change)
    assert said in form.difference(CheckpointForm.of(other))


def test_files_cut_short_are_refused(other: Path) -> None:
    path = other / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match="copy it again"):
        CheckpointForm.of(other)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError, match="its header cannot be read"):
        CheckpointForm.of(other)
    for header in (
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, "4 bytes"]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, Infinity]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b"[" * 100_000,
    ):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ModelError, match="its header cannot be read"):
            CheckpointForm.of(other)
    path.unlink()
    with pytest.raises(ModelError, match="only weights in safetensors files"):
        CheckpointForm.of(other)


def test_the_file_that_is_read_is_judged(form: CheckpointForm, other: Path) -> None:
    """If a folder has a single file and shards, transformers reads the single file."""
    shutil.copy(other / "model.safetensors", other / "shard.safetensors")
    names = dict.fromkeys(form.tensors, "shard.safetensors")
    index = json.dumps({"metadata": {}, "weight_map": names})
    (other / "model.safetensors.index.json").write_text(index)
    with_tensors(other, _drop)
    assert form.difference(CheckpointForm.of(other)).startswith("it lacks 1 tensors")


@pytest.mark.parametrize("name", ADAPTER_FILES)
def test_adapters_beside_the_weights_are_refused(other: Path, name: str) -> None:
    (other / name).write_text("{}")
    with pytest.raises(ModelError, match=f"has an adapter \\({name}\\) in addition"):
        CheckpointForm.of(other)
