"""`--weight-loader` names a loader, or `auto` finds the one whose format the folder has."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.model.weights.loader_source import LoaderSource
from llmfw.core.model.weights.transformers_source import TransformersSource
from llmfw.core.model.weights.weight_choice import choose_weights
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.plugins.weights_transformers import bin_loader, safetensors_loader

from ....doubles.raw_weights import INDEX, RawWeights, save
from ...engine.generation.tiny_models import SERVABLE, save_random_model

CPU = torch.device("cpu")
TENSORS = {"model.norm.weight": torch.ones(3)}


class Broken(RawWeights):
    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        raise OSError("no driver")


def entry(name: str = "raw", rank: int = 0, component: type[Any] = RawWeights, **fields: Any) -> Entry:
    path = f"{component.__module__}:{component.__name__}"
    return Entry("weight_loader", name, path, "tests", "llmfw-tests", "1.0", rank=rank, **fields)


def chosen(model: Path | str, *entries: Entry, **settings: Any) -> Any:
    registry = Registry([*load_plugins().registry.entries("weight_loader"), *(entries or [entry()])])
    return choose_weights(EngineConfig(model=str(model), **settings), registry)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([bin_loader.save, save], "bin"),
        ([bin_loader.save, safetensors_loader.save], "safetensors"),
        ([], None),
    ],
)
def test_auto_takes_the_largest_rank(tmp_path: Path, written: list[Any], expected: str | None) -> None:
    for each in written:
        each(tmp_path, TENSORS)
    found = chosen(tmp_path)
    assert isinstance(found, TransformersSource)
    assert found._format == expected


def test_auto_finds_a_plugin_s_format(tmp_path: Path) -> None:
    save(tmp_path, TENSORS)
    assert isinstance(chosen(tmp_path), LoaderSource)
    safetensors_loader.save(tmp_path, TENSORS)
    assert isinstance(chosen(tmp_path, entry(rank=200)), LoaderSource)


def test_equal_ranks_are_a_conflict(tmp_path: Path) -> None:
    save(tmp_path, TENSORS)
    both = entry("one"), entry("two")
    with pytest.raises(
        ConfigError, match=r"tests/one and tests/two; choose one by --weight-loader, or remove"
    ):
        chosen(tmp_path, *both)
    assert isinstance(chosen(tmp_path, *both, weight_loader="two"), LoaderSource)


def test_auto_passes_over_unusable_loaders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path, TENSORS)
    unusable = entry("broken", 3, Broken), entry("lacking", 2, needs=("no_such_module",))
    with caplog.at_level(logging.WARNING):
        assert isinstance(chosen(tmp_path, *unusable, entry()), LoaderSource)
    assert "Weight loader tests/broken is passed over: " in caplog.text
    assert "OSError: no driver" in caplog.text
    with pytest.raises(ComponentError, match="needs no_such_module, which is not installed"):
        chosen(tmp_path, *unusable, weight_loader="lacking")


def test_safetensors_are_found_without_other_imports(tmp_path: Path) -> None:
    safetensors_loader.save(tmp_path, TENSORS)
    absent = Entry("weight_loader", "x", "no_such_module:X", "tests", "llmfw-tests", "1.0")
    assert isinstance(chosen(tmp_path, absent), TransformersSource)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weight_loader": "rae"}, "unknown weight loader 'rae'"),
        ({"weight_loader": "bin"}, "has no weights in the format of weight loader 'bin'"),
        (
            {"weight_loader": "raw", "load_format": "dummy"},
            "--load-format dummy reads no weights; leave out one",
        ),
        (
            {"options": {"weight_loader.bin.x": "1"}},
            "no weight loader 'bin' is chosen; --weight-loader NAME chooses them",
        ),
        ({"options": {"weight_loader.raw.x": "1"}}, "weight loader 'raw' has no option 'x'; known: prefix"),
    ],
)
def test_settings_that_cannot_hold_are_refused(tmp_path: Path, settings: Any, expected: str) -> None:
    save(tmp_path, TENSORS)
    with pytest.raises(ConfigError, match=expected):
        chosen(tmp_path, **settings)


def test_hub_ids_are_left_to_transformers() -> None:
    assert chosen("a/model")._format is None
    assert chosen("a/model", weight_loader="bin")._format == "bin"
    with pytest.raises(
        ModelError, match=r"'raw' of plugin 'tests' reads folders: download it \(hf download a/model"
    ):
        chosen("a/model", weight_loader="raw")


def test_random_weights_have_no_source(tmp_path: Path) -> None:
    save(tmp_path, TENSORS)
    assert chosen(tmp_path, load_format="dummy") is None


def test_the_named_format_is_read(tmp_path: Path) -> None:
    """Of three formats with other numbers each, in one folder."""
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    tensors = load_file(folder / "model.safetensors")
    norm = tensors["model.norm.weight"]
    save(folder, tensors | {"model.norm.weight": norm + 1})
    bin_loader.save(folder, tensors | {"model.norm.weight": norm + 2})
    registry = Registry([*load_plugins().registry.entries("weight_loader"), entry()])
    found = {}
    for name in ("auto", "safetensors", "raw", "bin"):
        config = EngineConfig(
            model=str(folder), device="cpu", dtype="float32", module_passes="none", weight_loader=name
        )
        model = load_model(config, CPU, registry).module
        found[name] = float(model.get_parameter("model.norm.weight")[0] - norm[0])  # type: ignore[operator]
        assert packed_logits(model, 300).isfinite().all()
    assert found == pytest.approx({"auto": 0, "safetensors": 0, "raw": 1, "bin": 2})
    assert (folder / INDEX).is_file()
