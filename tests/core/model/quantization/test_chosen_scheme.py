"""What a scheme does wrong is one line that names the plugin and the layer, before anything is served."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.interfaces.quantization_scheme import LinearLayer, QuantizationScheme
from llmfw.core.model.models import load_model
from llmfw.core.model.quantization.quantize import quantize
from llmfw.core.plugin.registry import Registry

from ....doubles.six_bit_scheme import SixBit, SixBitLinear
from ...engine.generation.tiny_models import SERVABLE, save_random_model
from .schemes import chosen, entry
from .test_quantize import make

CPU = torch.device("cpu")


class Module(nn.Module):
    """Wraps a module, and changes its outputs."""

    def __init__(self, inner: nn.Module, change: Any) -> None:
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, hidden: torch.Tensor) -> Any:
        return self.change(self.inner(hidden))


class Changed(SixBit):
    """A scheme whose modules return something else; subclasses say what."""

    def change(self, output: torch.Tensor) -> Any:
        raise NotImplementedError

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        return Module(super().quantize(layer, weight, bias), self.change)


class Narrow(Changed):
    def change(self, output: torch.Tensor) -> Any:
        return output[..., 1:]


class InDoubles(Changed):
    def change(self, output: torch.Tensor) -> Any:
        return output.double()


class Tuples(Changed):
    def change(self, output: torch.Tensor) -> Any:
        return (output,)


class NaNs(Changed):
    def change(self, output: torch.Tensor) -> Any:
        return output.masked_fill(output > output.mean(), torch.nan)


class TwiceAsLarge(Changed):
    def change(self, output: torch.Tensor) -> Any:
        return 2 * output


class Raises(Changed):
    def change(self, output: torch.Tensor) -> Any:
        raise ZeroDivisionError("in a module\nof mine")


class Flat(Changed):
    """Fits inputs with a batch dimension only."""

    def change(self, output: torch.Tensor) -> Any:
        return output[0][None]


class OneScale(SixBit):
    """Rounds the inputs of all rows by one scale."""

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        return Rounding(super().quantize(layer, weight, bias))


class Rounding(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> Any:
        scale = hidden.abs().max() / 127
        return self.inner((hidden / scale).round() * scale)


class NoModule(SixBit):
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> Any:
        return weight


class RaisesInQuantize(SixBit):
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> Any:
        raise SystemExit("oh")


class WrongSize(SixBit):
    def num_bytes(self, layer: LinearLayer) -> Any:
        return 8.5


class CountsTooLittle(SixBit):
    def num_bytes(self, layer: LinearLayer) -> Any:
        return layer.out_features * layer.in_features // 4 * 3


class KeepsAView(SixBit):
    """Keeps more in memory than its buffers show."""

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        module = super().quantize(layer, weight, bias)
        assert isinstance(module, SixBitLinear)
        both = torch.cat((module.held.codes, module.held.codes))
        module.held.codes = both[: len(module.held.codes)]
        return module


class HasParameters(SixBit):
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        module = super().quantize(layer, weight, bias)
        module.codes = nn.Parameter(torch.zeros(3, dtype=torch.uint8), requires_grad=False)
        return module


class WrongEmbeddings(SixBit):
    def embedding(self, head: nn.Module) -> nn.Module:
        return Module(super().embedding(head), lambda rows: rows.roll(1, -1))


class OwnEmbeddings(SixBit):
    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, SixBitLinear)
        return nn.Embedding.from_pretrained(head.held.rows(slice(None)).bfloat16())


FAULTS: dict[type[QuantizationScheme], str] = {
    Narrow: r"quantize\(\) of layer .*: its module returned \[1, 3, 299\] in bfloat16 on cpu in place of \[1, 3, 300\]",
    InDoubles: r"its module returned \[1, 3, 300\] in float64 on cpu in place of .* in bfloat16",
    Tuples: "its module returned a tuple in place of a tensor",
    NaNs: "its module returned NaN or infinity for finite inputs",
    TwiceAsLarge: "its module's outputs are .* away from the layer's.*; its tolerance is 0.05",
    Raises: "ZeroDivisionError: in a module of mine",
    Flat: r"its module returned \[1, 300\]",
    OneScale: "its module's outputs are .* away from the layer's",
    NoModule: "it returned tensor.* in place of a torch.nn.Module",
    RaisesInQuantize: "SystemExit: oh",
    WrongSize: r"num_bytes\(\) of layer .*: it returned 8.5 in place of a number of bytes or None",
    CountsTooLittle: r"its module keeps 16,800 bytes in buffers and parameters, and num_bytes\(\) gives 14,400",
    KeepsAView: r"its module keeps [\d,]+ bytes in buffers and parameters, and num_bytes\(\) gives",
    HasParameters: "its module has the parameter 'codes'; register a buffer",
    WrongEmbeddings: r"embedding\(\) of layer lm_head: its module's outputs are .* away",
    OwnEmbeddings: "its embedding layer has 1 tensors of its own; it must share the buffers of the head",
}


@pytest.mark.parametrize("kind", FAULTS, ids=[kind.__name__ for kind in FAULTS])
def test_a_fault_names_plugin_and_layer(kind: type[QuantizationScheme]) -> None:
    with pytest.raises(ComponentError, match=FAULTS[kind]) as error:
        quantize(make("llama", tie_word_embeddings=True), chosen(kind))
    text = str(error.value)
    assert text.startswith(f"quantization scheme {kind.__name__!r} of plugin 'ext' (llmfw-ext 1.2, ")
    assert "\n" not in text
    assert "--quantization" in text


@pytest.mark.parametrize("tolerance", [0, -1.0, math.nan, math.inf, "0.1", True])
def test_a_tolerance_is_a_number_above_zero(tolerance: Any) -> None:
    wrong = type("Wrong", (SixBit,), {"tolerance": tolerance, "__module__": __name__})
    globals()["Wrong"] = wrong
    with pytest.raises(ComponentError, match=r"has the tolerance .*; it must be a number above 0"):
        chosen(wrong)


def test_reasons_must_be_text() -> None:
    with pytest.raises(
        ComponentError, match=r"unsupported\(\): it returned True in place of a reason or None"
    ):
        chosen(Unsure).check_support(CPU, torch.float32)


class Unsure(SixBit):
    def unsupported(self, device: str, dtype: torch.dtype) -> Any:
        return True


def test_wrong_options_name_the_scheme() -> None:
    with pytest.raises(ConfigError, match=r"scheme 'SixBit' .*quantization_scheme\.group is '3'; it must be"):
        chosen(SixBit, group="3")


class FailsLater(Changed):
    """Is right in the trial, and fails for inputs of many rows."""

    def change(self, output: torch.Tensor) -> Any:
        if output.shape[-2] > 3:
            raise IndexError("too many rows")
        return output


class ChangesTorch(SixBit):
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        torch.set_default_dtype(torch.float64)
        return super().quantize(layer, weight, bias)


def test_a_module_failing_in_the_probe_is_named(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    config = EngineConfig(model=str(folder), dtype="float32", quantization="FailsLater")
    with pytest.raises(
        ComponentError, match=r"^with quantization scheme 'FailsLater' .*too many rows.*--quant"
    ):
        load_model(config, CPU, Registry([entry(FailsLater)]))


def test_settings_of_torch_are_restored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    quantize(make("llama"), chosen(ChangesTorch))
    assert torch.get_default_dtype() == torch.float32
    assert "quantization scheme 'ChangesTorch'" in caplog.text


def test_weights_of_zeros_and_small_heads_pass() -> None:
    """Neither a norm of zero nor a single output is taken for an error."""
    for name in ("int8", "int4"):
        scheme, layer = chosen(name), LinearLayer("x", 1, 96, torch.float32)
        num_bytes = scheme.num_bytes(layer)
        assert num_bytes is not None
        for weight in (
            torch.zeros(1, 96),
            torch.randn(1, 96),
            torch.eye(96)[5:6],
            1e-30 * torch.randn(1, 96),
        ):
            scheme.quantize(layer, num_bytes, weight, torch.zeros(1))


def test_infinite_weights_are_left_to_the_loader() -> None:
    weight = torch.randn(8, 64)
    weight[3, 5] = torch.inf
    layer = LinearLayer("x", 8, 64, torch.float32)
    chosen("int8").quantize(layer, 8 * 2 * 34, weight, None)
