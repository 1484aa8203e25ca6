"""Codes and scales, against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.model.quantization.code_format import FORMATS, GROUP, INT4, INT8, CodeFormat
from llmfw.core.model.quantization.codes import (
    decode,
    encode,
    levels,
    nearest_levels,
    pack_halves,
    unpack_halves,
)
from llmfw.core.model.quantization.modules import QuantizedLinear, QuantizedWeight

EACH = pytest.mark.parametrize("code_format", FORMATS.values(), ids=FORMATS)
SHAPES = pytest.mark.parametrize("shape", [(1, 1), (7, 32), (70, 33), (33, 577)])
MAGNITUDES = st.lists(st.floats(-1, 1, width=32), min_size=GROUP, max_size=GROUP)


def weight_of(shape: tuple[int, int]) -> torch.Tensor:
    """Return random weights, some groups of which are far from the others, and one row zero."""
    torch.manual_seed(shape[0])
    weight = torch.randn(shape) * torch.logspace(-6, 3, shape[0])[:, None]
    weight[shape[0] // 2] = 0
    return weight.bfloat16()


@given(MAGNITUDES, st.integers(-100, 60))
@settings(max_examples=60, deadline=None)
def test_int8_errors_stay_within_half_a_scale(numbers: list[float], exponent: int) -> None:
    group = torch.tensor([[1.0, *numbers[1:]]]) * 2.0**exponent
    codes, scales = encode(group, INT8)
    error = (decode(codes, scales, INT8).double() - group.double()).abs()
    assert (error <= scales.double()[:, None] / 2 * (1 + 1e-6)).all()
    assert codes.abs().max() <= 127


@given(MAGNITUDES, st.integers(-100, 60))
@settings(max_examples=60, deadline=None)
def test_int4_codes_are_nearest_with_a_good_scale(numbers: list[float], exponent: int) -> None:
    """The scale is no worse than the largest weight divided by the largest level."""
    group = torch.tensor([[1.0, *numbers[1:]]]) * 2.0**exponent
    codes, scales = encode(group, INT4)
    found = (decode(codes, scales, INT4).double() - group.double()).abs()

    def nearest(scale: torch.Tensor) -> torch.Tensor:
        every = levels().double() * scale.double()[:, None]
        return (every[:, None, :] - group.double()[:, :, None]).abs().amin(-1)

    assert torch.allclose(found, nearest(scales), rtol=1e-5, atol=float(group.abs().max()) * 1e-6)
    plain = (group.abs().amax(-1) / levels()[-1]).bfloat16()
    assert found.square().sum() <= nearest(plain).square().sum() * (1 + 1e-5) + 1e-300


def test_nearest_levels_equal_a_search_among_borders() -> None:
    borders = (levels()[1:] + levels()[:-1]) / 2
    ends = torch.tensor([-torch.inf, torch.inf])
    beside = [torch.nextafter(borders, end) for end in ends]
    grid = torch.arange(-40, 40, 1 / 64)
    numbers = torch.cat((borders, *beside, grid, torch.tensor([-1e9, 1e9, 1e-45, -1e-45])))
    assert torch.equal(nearest_levels(numbers), torch.bucketize(numbers, borders, out_int32=True))
    assert torch.equal(levels()[nearest_levels(levels()).long()], levels())


def test_int4_levels_are_symmetric_and_denser_near_zero() -> None:
    steps = levels().diff()
    assert torch.equal(levels(), -levels().flip(0))
    assert steps.argmin() == 7
    assert 2 < steps.max() / steps.min() < 2.5


def test_bfloat16_has_every_level_of_both_formats() -> None:
    whole = torch.arange(-127.0, 128.0)
    assert torch.equal(whole.bfloat16().float(), whole)
    assert torch.equal(levels().bfloat16().float(), levels())
    u = torch.arange(16) - 7.5
    assert torch.allclose(levels(), u + u**3 / 128, rtol=2**-8, atol=0)


def test_a_byte_holds_two_int4_codes() -> None:
    codes = torch.randint(16, (3, 2, GROUP), dtype=torch.uint8)
    assert pack_halves(codes).shape == (3, 2, GROUP // 2)
    assert torch.equal(unpack_halves(pack_halves(codes)), codes)


@EACH
@SHAPES
def test_quantized_weights_are_close_and_small(code_format: CodeFormat, shape: tuple[int, int]) -> None:
    weight = weight_of(shape)
    quantized = QuantizedWeight.of(weight, code_format)
    found = quantized.rows(slice(None), torch.float32)
    error = (found - weight.float()).norm(dim=-1) / weight.float().norm(dim=-1).clamp(min=1e-30)
    assert error.max() < (0.01 if code_format.bits == 8 else 0.12)
    assert torch.equal(quantized.rows(torch.tensor([0, shape[0] - 1]), torch.float32), found[[0, -1]])
    assert sum(buffer.nbytes for buffer in quantized.buffers()) == code_format.num_bytes(*shape)


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at_once", [1, 1 << 22])
def test_quantized_products_equal_those_of_decoded_weights(
    code_format: CodeFormat, dtype: torch.dtype, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfw.core.model.quantization.modules.AT_ONCE", at_once)
    weight, hidden = torch.randn(40, 50).to(dtype), torch.randn(2, 3, 50).to(dtype)
    bias = torch.nn.Parameter(torch.randn(40).to(dtype), requires_grad=False)
    layer = QuantizedLinear(QuantizedWeight.of(weight, code_format), bias)
    exact = hidden.double() @ layer.quantized.rows(slice(None), torch.float64).T + bias.double()
    output = layer(hidden)
    assert output.dtype == dtype
    assert (output.double() - exact).abs().max() <= (
        1e-5 if dtype == torch.float32 else 1e-2
    ) * exact.abs().max()
