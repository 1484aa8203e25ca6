"""How numbers get into a narrower dtype, and what is said of one that is none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.kv_dtype import KV_DTYPES, choose_kv_dtype, decode, dtype_name, encode
from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES

from ..engine.generation.running import build_engine

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_an_unknown_dtype_names_the_known_ones() -> None:
    message = "--kv-cache-dtype is 'int8'; it must be auto or one of float32, bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2"
    with pytest.raises(ConfigError, match=message):
        choose_kv_dtype("int8", torch.bfloat16)


def test_the_dtype_is_checked_before_the_model() -> None:
    with pytest.raises(ConfigError, match="--kv-cache-dtype is 'fp4'"):
        build_engine("no such folder", kv_cache_dtype="fp4")


def test_names_and_byte_sizes_agree() -> None:
    assert {name: dtype.itemsize for name, dtype in KV_DTYPES.items()} == KV_DTYPE_BYTES
    assert choose_kv_dtype("auto", torch.float16) == torch.float16
    assert dtype_name(choose_kv_dtype("fp8", torch.float16)) == "fp8_e4m3"


@pytest.mark.parametrize("stored_as", FP8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_too_large_numbers_saturate(dtype: torch.dtype, stored_as: torch.dtype) -> None:
    largest = torch.finfo(stored_as).max
    numbers = torch.tensor([largest, 60000.0, torch.inf, -60000.0, -torch.inf], dtype=dtype)
    assert encode(numbers, stored_as).double().tolist() == [largest] * 3 + [-largest] * 2
    assert encode(numbers[:1], stored_as, scale=0.01).item() == largest


def test_bfloat16_saturates_in_float16() -> None:
    numbers = torch.tensor([1e30, -70000.0, 3.0], dtype=torch.bfloat16)
    assert encode(numbers, torch.float16).tolist() == [65504.0, -65504.0, 3.0]


@pytest.mark.parametrize("stored_as", FP8)
@given(
    numbers=st.lists(FINITE, min_size=1, max_size=50), scale=st.sampled_from([1.0, 0.004, 0.3, 7.0, 1000.0])
)
def test_numbers_round_to_the_nearest_code(
    stored_as: torch.dtype, numbers: list[float], scale: float
) -> None:
    given_numbers = torch.tensor(numbers) * torch.tensor(1.0 / scale)
    known = torch.arange(256, dtype=torch.uint8).view(stored_as).double()
    known = known[known.isfinite()]
    found = encode(torch.tensor(numbers), stored_as, scale).double()
    least = (given_numbers.double()[:, None] - known).abs().min(dim=1).values
    assert torch.equal((given_numbers.double() - found).abs(), least)


@pytest.mark.parametrize("stored_as", FP8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_code_decodes_like_torch(dtype: torch.dtype, stored_as: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(stored_as).view(2, 4, 32)
    torch.testing.assert_close(decode(codes, dtype), codes.to(dtype), atol=0, rtol=0, equal_nan=True)
