"""The bundled weight loaders keep the promises of the interface."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from llmfw.core import ModelError, WeightLoader
from llmfw.core.testing import WeightLoaderTests
from llmfw.plugins.weights_transformers.bin_loader import BinLoader
from llmfw.plugins.weights_transformers.safetensors_loader import SafetensorsLoader

from ..doubles.raw_weights import RawWeights


class TestSafetensors(WeightLoaderTests):
    @pytest.fixture
    def loader(self) -> type[SafetensorsLoader]:
        return SafetensorsLoader


class TestBin(WeightLoaderTests):
    @pytest.fixture
    def loader(self) -> type[BinLoader]:
        return BinLoader


class TestRaw(WeightLoaderTests):
    """The made-up format of the tests is a good example, too."""

    @pytest.fixture
    def loader(self) -> type[RawWeights]:
        return RawWeights


class Command:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self._file}",)


LOADERS = {"model.safetensors": SafetensorsLoader, "pytorch_model.bin": BinLoader}


def built(folder: Path, name: str) -> WeightLoader:
    return LOADERS[name](folder, WeightLoader.Options())


@pytest.mark.parametrize("name", LOADERS)
def test_shards_are_read_by_their_index(tmp_path: Path, name: str) -> None:
    tensors = {f"a.{i}": torch.full((2, 2), float(i)) for i in range(4)}
    stem, _, suffix = name.partition(".")
    placed = {}
    for i in (0, 1):
        file = f"{stem}-0000{i}-of-00002.{suffix}"
        part = {key: tensors[key] for key in list(tensors)[i::2]}
        placed |= dict.fromkeys(part, file)
        (save_file if suffix == "safetensors" else torch.save)(part, tmp_path / file)
    index = tmp_path / f"{name}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    loader = built(tmp_path, name)
    assert loader.recognizes(tmp_path)
    assert sorted(loader.files()) == sorted({*placed.values(), index.name})
    assert {key for key, _ in loader.tensors()} == tensors.keys()
    assert all(torch.equal(loader.read(key), tensors[key]) for key in tensors)


@pytest.mark.parametrize("name", LOADERS)
def test_shards_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    content = {"metadata": {}, "weight_map": {"a": f"../{name}"}}
    (tmp_path / f"{name}.index.json").write_text(json.dumps(content))
    loader = built(tmp_path, name)
    for method in (loader.files, lambda: list(loader.tensors()), lambda: loader.read("a")):
        with pytest.raises(ModelError, match="it has to name a file of the model's folder"):
            method()


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    torch.save({"a": Command(tmp_path / "was_run")}, tmp_path / "pytorch_model.bin")
    loader = built(tmp_path, "pytorch_model.bin")
    for method in (lambda: list(loader.tensors()), lambda: loader.read("a")):
        with pytest.raises(ModelError, match=r"would call posix\.system"):
            method()
    assert not (tmp_path / "was_run").exists()


def test_older_pickles_are_left_to_transformers(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert list(built(tmp_path, "pytorch_model.bin").tensors()) == []


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch 2.11, of any sparse tensor
def test_sparse_tensors_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"a": torch.eye(4).to_sparse()}, tmp_path / "pytorch_model.bin")
    for method in (lambda loader: list(loader.tensors()), lambda loader: loader.read("a")):
        with pytest.raises(ModelError, match="holds a in the layout sparse_coo; store it dense"):
            method(built(tmp_path, "pytorch_model.bin"))
