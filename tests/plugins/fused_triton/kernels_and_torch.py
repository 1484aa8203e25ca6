"""The kernels against torch: by Triton's interpreter where TRITON_INTERPRET=1, else on a GPU.

Run by test_interpreted_kernels.py and, on a GPU, by test_fused_triton.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from llmfw.plugins.fused_triton.ops import HeadNorm, add_rms_norm, norm_shape, rms_norm, rotate, silu_mul

ON_GPU = os.environ.get("TRITON_INTERPRET") != "1"
HALVES = [torch.float16, torch.bfloat16] if ON_GPU else [torch.float16]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
SHAPES = [(1, 8), (5, 48), (17, 64), (3, 100), (2, 3, 128), (1, 1, 1500), (0, 64)]
EPS = 1e-2
ULP = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""One unit in the last place or two: of the largest of a few standard deviations."""

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.device("cuda" if ON_GPU else "cpu"):
        yield


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    tolerance = ULP[expected.dtype]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def norm_of(width: int, dtype: torch.dtype, from_one: bool) -> torch.nn.Module:
    norm = (Gemma2RMSNorm if from_one else LlamaRMSNorm)(width, EPS).to(dtype)
    torch.nn.init.normal_(norm.weight, 1.0)
    return norm.requires_grad_(False)


@DTYPES
@pytest.mark.parametrize("from_one", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_norm_equals_transformers(shape: tuple[int, ...], from_one: bool, dtype: torch.dtype) -> None:
    norm = norm_of(shape[-1], dtype, from_one)
    for scale in (EPS, 1, 100):
        hidden = (torch.randn(shape) * scale).to(dtype)
        close(rms_norm(hidden, norm.weight, EPS, from_one), norm(hidden))


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_sum_is_torch_s_bit_for_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The norm is that of the rounded sum."""
    norm = norm_of(shape[-1], dtype, False)
    hidden, residual = (torch.randn(shape).to(dtype) for _ in range(2))
    kept = hidden.clone(), residual.clone()
    total, normed = add_rms_norm(hidden, residual, norm.weight, EPS, False)
    assert torch.equal(total, hidden + residual)
    close(normed, norm(hidden + residual))
    assert torch.equal(hidden, kept[0])
    assert torch.equal(residual, kept[1])


def test_rows_may_be_slices() -> None:
    whole, norm = torch.randn(2, 7, 96), norm_of(32, torch.float32, False)
    for part in whole.split(32, dim=-1):
        close(rms_norm(part, norm.weight, EPS, False), norm(part))
        close(add_rms_norm(part, part, norm.weight, EPS, False)[1], norm(part + part))
    close(rms_norm(whole.mT.contiguous().mT[..., :32], norm.weight, EPS, False), norm(whole[..., :32]))


@pytest.mark.parametrize("width", [1, 7, 64, 128, 1000, 2048, 4096, 5120, 8192, 16384])
def test_norm_programs_have_about_sixteen_elements_a_thread(width: int) -> None:
    shape = norm_shape(width)
    assert shape.block >= width
    assert 8 <= shape.block_rows * shape.block / (32 * shape.num_warps) <= 32


@DTYPES
@pytest.mark.parametrize("shape", [(1, 8), (3, 80), (2, 2, 1024), (1, 2500), (0, 8)], ids=str)
def test_silu_times_up_equals_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    both = torch.randn(*shape[:-1], 2 * shape[-1]).mul(4).to(dtype)
    gate, up = both.chunk(2, dim=-1)
    found = silu_mul(gate, up)
    torch.testing.assert_close(found, functional.silu(gate) * up, atol=1e-5, rtol=2 * ULP[dtype])
    assert found.is_contiguous()


def test_silu_of_the_largest_numbers_is_finite() -> None:
    gate = torch.tensor([[-6e4, -200.0, -0.0, 200.0, 6e4]], dtype=torch.float16)
    assert torch.equal(silu_mul(gate, torch.ones_like(gate)), functional.silu(gate))


@DTYPES
@pytest.mark.parametrize("norms", ["none", "as Qwen3's", "as Gemma's"])
@pytest.mark.parametrize(
    ("heads", "head_dim"), [((1, 1), 2), ((4, 2), 16), ((9, 3), 24), ((16, 8), 64)], ids=str
)
def test_rotated_heads_equal_transformers(
    heads: tuple[int, int], head_dim: int, norms: str, dtype: torch.dtype
) -> None:
    num_tokens, (num_heads, num_kv_heads) = 3, heads
    merged = torch.randn(1, num_tokens, (num_heads + 2 * num_kv_heads) * head_dim).to(dtype)
    query, key, _ = merged.unflatten(-1, (-1, head_dim)).split(
        [num_heads, num_kv_heads, num_kv_heads], dim=-2
    )
    cos, sin = torch.randn(2, 1, num_tokens, head_dim).to(dtype)
    from_one = norms == "as Gemma's"
    modules = [norm_of(head_dim, dtype, from_one) for _ in range(2)]
    found = rotate(
        query,
        key,
        cos,
        sin,
        None if norms == "none" else tuple(HeadNorm(m.weight, EPS, from_one) for m in modules),  # type: ignore[arg-type]
    )
    if norms != "none":
        query, key = modules[0](query), modules[1](key)
    expected = apply_rotary_pos_emb(query.transpose(1, 2), key.transpose(1, 2), cos, sin)
    for ours, theirs in zip(found, expected, strict=True):
        if norms == "none" and not (
            ON_GPU and dtype == torch.float32
        ):  # a GPU rounds a product and a sum once
            assert torch.equal(ours.transpose(1, 2), theirs)
        torch.testing.assert_close(ours.transpose(1, 2), theirs, atol=4 * ULP[dtype], rtol=4 * ULP[dtype])
        assert ours.is_contiguous()


def test_rotating_no_tokens_works() -> None:
    query, key = torch.empty(1, 0, 4, 16), torch.empty(1, 0, 2, 16)
    table = torch.empty(1, 0, 16)
    assert [x.shape for x in rotate(query, key, table, table)] == [query.shape, key.shape]
