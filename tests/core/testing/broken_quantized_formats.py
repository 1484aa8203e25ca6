"""Quantized formats that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch

from llmfw.core import ModelError, QuantizedFormat, StoredLayer, StoredTensor
from llmfw.core.testing import QuantizedExample, QuantizedFormatTests

from ...doubles.row_codes import RowCodes, example


class Broken(RowCodes):
    """Reads the made-up format of the tests."""


class TakesRotatedWeights(Broken):
    """Does not look at a setting that its examples do not have."""

    conformance: ClassVar = {"example": example, "refused": [{"rotation": "hadamard"}]}


class ForgetsTheScales(Broken):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return tensors["codes"].float()


class RoundsToHalf(Broken):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors).half().float()


class ReturnsHalf(Broken):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors).half()


class Transposes(Broken):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors).T


class TakesBiases(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        layer = super().layer(name, codes, tensors)
        bias = {"bias": f"{name}.bias"} if f"{name}.bias" in tensors else {}
        return StoredLayer(name, layer.out_features, layer.in_features, {**layer.tensors, **bias})


class SkipsLargeLayers(Broken):
    def layers(self, tensors: Mapping[str, StoredTensor]) -> Any:
        return (layer for layer in super().layers(tensors) if layer.out_features < 200)


class ScalesInPlace(Broken):
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        found = super().weight(layer, tensors)
        tensors["scales"].mul_(1.5)
        return found


class CachesByName(Broken):
    cache: ClassVar[dict[str, torch.Tensor]] = {}

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.cache.setdefault(layer.name, super().weight(layer, tensors)).clone()


class ReusesABuffer(Broken):
    buffers: ClassVar[dict[Any, torch.Tensor]] = {}

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        shape = layer.out_features, layer.in_features
        return self.buffers.setdefault(shape, torch.empty(shape)).copy_(super().weight(layer, tensors))


class TakesMissingScalesForOne(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        if f"{name}.scales" in tensors:
            return super().layer(name, codes, tensors)
        return StoredLayer(name, codes.shape[0], codes.shape[1], {"codes": f"{name}.codes"})

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, {"scales": torch.ones(layer.out_features), **tensors})


class RepeatsScales(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        return StoredLayer(
            name, codes.shape[0], codes.shape[1], {leaf: f"{name}.{leaf}" for leaf in ("codes", "scales")}
        )

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        scales = tensors["scales"].reshape(-1).repeat(2)[: layer.out_features]
        return super().weight(layer, {"codes": tensors["codes"], "scales": scales})


class TakesAnyDtype(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        return super().layer(
            name,
            StoredTensor("int8", codes.shape),
            {n: StoredTensor("float32", each.shape) for n, each in tensors.items()},
        )

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, {key: each.float() for key, each in tensors.items()})


class IgnoresItsBits(Broken):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        QuantizedFormat.__init__(self, settings)

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors) * (1.0 if self.settings.get("bits") == 8 else 16.0)


class RaisesKeyError(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        assert tensors[f"{name}.scales"]
        return super().layer(name, codes, tensors)


class ScalesAllRowsAlike(Broken):
    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        return dataclasses.replace(super().layer(name, codes, tensors), has_module=True)

    def module(
        self, layer: StoredLayer, linear: torch.nn.Linear, tensors: Mapping[str, torch.Tensor]
    ) -> torch.nn.Module:
        linear.register_forward_pre_hook(lambda module, inputs: (inputs[0] / inputs[0].abs().amax(),))
        return linear


class IgnoresInnerSettings(Broken):
    """Reads the number of bits inside of another setting, and takes any other number for 4."""

    conformance: ClassVar = {"example": lambda *sizes: with_settings(example(*sizes), {"codes": {"bits": 8}})}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__({"bits": 8})
        self.factor = 1.0
        match settings.get("codes"):
            case {"bits": bits}:
                self.factor = 1.0 if bits == 8 else 16.0
            case _:
                raise ModelError("quantization_config.codes has no bits")

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return super().weight(layer, tensors) * self.factor


class ReplacesLayers(RowCodes):
    """Replaces layers by modules that round their inputs to integers."""

    conformance: ClassVar = {
        "example": lambda *sizes: dataclasses.replace(example(*sizes), rounded=torch.round)
    }

    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        return dataclasses.replace(super().layer(name, codes, tensors), has_module=True)

    def module(
        self, layer: StoredLayer, linear: torch.nn.Linear, tensors: Mapping[str, torch.Tensor]
    ) -> torch.nn.Module:
        linear.register_forward_pre_hook(lambda module, inputs: (self.rounded(inputs[0]),))
        return linear

    def rounded(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.round()


class RoundsDown(ReplacesLayers, Broken):
    def rounded(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.floor()


class ReturnsFloats(ReplacesLayers, Broken):
    def module(
        self, layer: StoredLayer, linear: torch.nn.Linear, tensors: Mapping[str, torch.Tensor]
    ) -> torch.nn.Module:
        module = super().module(layer, linear, tensors)
        module.register_forward_hook(lambda module, inputs, output: output.float())
        return module


def with_settings(given: QuantizedExample, settings: Mapping[str, Any]) -> QuantizedExample:
    return dataclasses.replace(given, settings={"quant_method": "row-codes", **settings})


class OfKind(QuantizedFormatTests):
    kind: type[QuantizedFormat]

    @pytest.fixture
    def quantized_format(self) -> type[QuantizedFormat]:
        return self.kind


def test_class(kind: type[QuantizedFormat]) -> Any:
    """Return a test class for a format."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
