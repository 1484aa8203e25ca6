"""A plugin's quantized format is served as its weights are, and its faults are told in one line."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core import ModelError, StoredLayer, StoredTensor
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.plugin.registry import Entry, Registry

from ....doubles.raw_weights import save
from ....doubles.row_codes import RowCodes, example
from ...engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model
from ..quantization.schemes import bundled
from ..weights.test_loader_source import registry as loaders

Tensors = dict[str, torch.Tensor]


def entry(component: type[Any], name: str = "row-codes", plugin: str = "ext", rank: int = 0) -> Entry:
    path = f"{component.__module__}:{component.__qualname__}"
    return Entry("quantized_format", name, path, plugin, "llmfw-ext", "1.2", rank=rank)


def logits(folder: Path, *entries: Entry, **settings: Any) -> torch.Tensor:
    settings = {"module_passes": "none", "dtype": "float32"} | settings
    registry = Registry([*(entries or [entry(RowCodes)]), *bundled(), *loaders().entries("weight_loader")])
    config = EngineConfig(model=str(folder), device="cpu", **settings)
    return packed_logits(load_model(config, torch.device("cpu"), registry).module, VOCAB_SIZE)


def refusal(folder: Path, *entries: Entry, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        logits(folder, *entries, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A quantized folder, and one with the same weights in float32."""
    folders = [save_random_model(tmp_path / name, *SERVABLE["llama"]) for name in ("quantized", "plain")]
    quantized, plain = (load_file(folder / "model.safetensors") for folder in folders)
    for i, (name, weight) in enumerate(list(plain.items())):
        if "_proj" in name:
            layer = example(*weight.shape, i)
            plain[name] = layer.weight * 0.004
            del quantized[name]
            quantized |= {
                name.replace("weight", leaf): tensor * (0.004 if leaf == "scales" else 1)
                for leaf, tensor in layer.tensors.items()
            }
    for folder, tensors in zip(folders, (quantized, plain), strict=True):
        save_file(tensors, folder / "model.safetensors")
    file = folders[0] / "config.json"
    settings = {"quantization_config": {"quant_method": "row-codes", "bits": 8}}
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folders[0], folders[1]


@pytest.mark.parametrize("module_passes", ["none", "auto"])
def test_third_party_formats_are_served(pair: tuple[Path, Path], module_passes: str) -> None:
    quantized, plain = pair
    found, expected = (logits(folder, module_passes=module_passes) for folder in (quantized, plain))
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def test_weight_loaders_and_formats_work_together(pair: tuple[Path, Path]) -> None:
    expected = logits(pair[0])
    file = pair[0] / "model.safetensors"
    save(pair[0], load_file(file))
    file.unlink()
    assert torch.equal(logits(pair[0], weight_loader="raw"), expected)


def test_bin_files_are_read_too(pair: tuple[Path, Path]) -> None:
    expected = logits(pair[0])
    file = pair[0] / "model.safetensors"
    torch.save(load_file(file), pair[0] / "pytorch_model.bin")
    file.unlink()
    assert torch.equal(logits(pair[0]), expected)


def test_the_log_tells_the_memory(pair: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logits(pair[0])
    assert "Quantized format: ext/row-codes. 21 linear layers are dequantized to float32: " in caplog.text


def test_a_second_quantization_is_refused(pair: tuple[Path, Path]) -> None:
    assert "is quantized already (row-codes)" in refusal(pair[0], quantization="int8")


def test_unknown_methods_list_those_of_plugins(pair: tuple[Path, Path]) -> None:
    text = refusal(pair[0], entry(RowCodes, "other-codes"))
    assert "quant_method 'row-codes', which transformers does not know" in text
    assert "other-codes" in text


def test_a_format_of_two_plugins_is_refused(pair: tuple[Path, Path]) -> None:
    both = entry(RowCodes), entry(RowCodes, plugin="another")
    assert "read by several plugins: another/row-codes and ext/row-codes" in refusal(pair[0], *both)
    ranked = entry(RaisesInWeight), entry(RowCodes, plugin="another", rank=1)
    assert torch.equal(logits(pair[0], *ranked), logits(pair[0]))


class RaisesInWeight(RowCodes):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        raise RuntimeError("no\nkernel")


class RefusesWeights(RowCodes):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        raise ModelError(f"{layer.name}.codes is damaged; download the model again")


class ReturnsBfloat16(RowCodes):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors).bfloat16()


class RepeatsLayers(RowCodes):
    def layers(self, tensors: Mapping[str, StoredTensor]) -> Any:
        return [*super().layers(tensors), *super().layers(tensors)]


class InventsTensors(RowCodes):
    def layers(self, tensors: Mapping[str, StoredTensor]) -> Any:
        return [StoredLayer("model.norm", 4, 4, {"codes": "nowhere"})]


class ReturnsNames(RowCodes):
    def layers(self, tensors: Mapping[str, StoredTensor]) -> Any:
        return list(tensors)


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (RaisesInWeight, "failed in weight() of layer 'model."),
        (ReturnsBfloat16, "torch.bfloat16; the weight is ["),
        (RepeatsLayers, "twice"),
        (InventsTensors, "returned 'nowhere' for a layer, which is not stored"),
        (ReturnsNames, "in place of a StoredLayer"),
    ],
)
def test_faults_name_the_plugin(pair: tuple[Path, Path], component: type[Any], reason: str) -> None:
    with pytest.raises(ComponentError) as caught:
        logits(pair[0], entry(component))
    text = str(caught.value)
    assert "quantized format 'row-codes' of plugin 'ext'" in text
    assert reason in text
    assert "\n" not in text


def test_refusals_of_plugins_are_passed_on(pair: tuple[Path, Path]) -> None:
    text = refusal(pair[0], entry(RefusesWeights))
    assert "cannot be loaded: model.layers.0." in text
    assert text.endswith("(quantized format 'row-codes' of plugin 'ext')")


class OneBuffer(RowCodes):
    """Returns all weights of a size in the same memory."""

    buffers: ClassVar[dict[Any, torch.Tensor]] = {}

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        shape = layer.out_features, layer.in_features
        return self.buffers.setdefault(shape, torch.empty(shape)).copy_(super().weight(layer, tensors))


def test_weights_in_the_same_memory_are_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(
        ComponentError, match=r"'row-codes' of plugin 'ext'.* must return a new tensor for each layer"
    ):
        logits(pair[0], entry(OneBuffer))
