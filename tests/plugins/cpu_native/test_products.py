"""Products, norms and threads of the native code, against float64."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from llmfw.plugins.cpu_native import library
from llmfw.plugins.cpu_native.libraries import build
from llmfw.plugins.cpu_native.library import load_library, open_library, why_not
from llmfw.plugins.cpu_native.weights import Arena, NativeEmbedding, NativeLinear, PackedWeights

from ...length import also_each

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 5e-3}
"""How far a result may be, relative to the largest: float32 sums, and one rounding to bfloat16."""

FLAGS = {
    "x86-64": ("sse2", "-march=x86-64"),
    "x86-64-v3": ("avx2", "-march=x86-64-v3"),
    "x86-64-v4": ("avx512vl", "-march=x86-64-v4"),
    "slow pairs": ("avx512_bf16", "-march=native", "-DLLMFW_PAIRS=1"),
    "fast pairs": ("avx512_bf16", "-march=native", "-DLLMFW_PAIRS=2"),
    "pairs without tables of bytes": (
        "avx512_bf16",
        "-march=native",
        "-mno-avx512vbmi",
        "-DLLMFW_PAIRS=2",
    ),
}
"""Kinds of CPU: what such a one says that it has, and how the compiler is told."""


def dtypes_of(cpu: str) -> list[torch.dtype]:
    """Return the dtypes whose code is another one on a kind of CPU: only bfloat16 is multiplied in pairs."""
    return [torch.bfloat16] if "pairs" in cpu else list(library.DTYPES)


def linear(in_features: int, out_features: int, dtype: torch.dtype, *, bias: bool = False) -> nn.Linear:
    torch.manual_seed(in_features * out_features)
    return nn.Linear(in_features, out_features, bias, dtype=dtype).requires_grad_(False)


def native(layer: nn.Linear) -> NativeLinear:
    return NativeLinear(PackedWeights([layer.weight], None if layer.bias is None else [layer.bias], Arena()))


def check_products(layer: nn.Linear, counts: range) -> None:
    packed = native(layer)
    bias = 0 if layer.bias is None else layer.bias.double()
    rows = torch.randn(max(counts), layer.in_features).to(layer.weight.dtype)
    expected = rows.double() @ layer.weight.double().T + bias
    whole = packed(rows)
    assert (whole.double() - expected).abs().max() <= BOUNDS[rows.dtype] * expected.abs().max()
    for count in counts:
        assert torch.equal(packed(rows[:count]), whole[:count]), count


@DTYPES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 1), (48, 80), (64, 32), (7, 33), (130, 200), (577, 65)])
def test_products_are_correct_for_any_row_count(
    shape: tuple[int, int], dtype: torch.dtype, bias: bool
) -> None:
    """A row gives the same bits among any number of rows."""
    check_products(linear(*shape, dtype, bias=bias), range(1, 41))


@DTYPES
def test_many_rows_are_split_into_blocks(dtype: torch.dtype) -> None:
    check_products(linear(96, 70, dtype), range(95, 301, 41))


@DTYPES
def test_many_outputs_are_split_into_panel_groups(dtype: torch.dtype) -> None:
    check_products(linear(40, 1100, dtype), range(2, 601, 299))


@DTYPES
def test_the_weights_can_be_read(dtype: torch.dtype) -> None:
    first, second = linear(13, 40, dtype, bias=True), linear(13, 7, dtype, bias=True)
    packed = PackedWeights([first.weight, second.weight], [first.bias, second.bias], Arena())
    for i, layer in enumerate((first, second)):
        part = NativeLinear(packed, i)
        assert torch.equal(part.weight, layer.weight)
        assert part.bias is not None
        assert torch.equal(part.bias, layer.bias)
        rows = torch.randn(3, 13).to(dtype)
        assert torch.allclose(part(rows).float(), layer(rows).float(), rtol=2e-2, atol=1e-3)


@DTYPES
def test_embeddings_equal_rows_of_the_weights(dtype: torch.dtype) -> None:
    layer = linear(13, 70, dtype)
    embedding = NativeEmbedding(PackedWeights([layer.weight], None, Arena()))
    ids = torch.randint(70, (2, 21))
    assert torch.equal(embedding(ids), layer.weight[ids])
    assert embedding(ids[:, :0]).shape == (2, 0, 13)
    for wrong in (-1, 70):
        with pytest.raises(IndexError, match="below 70"):
            embedding(torch.tensor([0, wrong]))


def test_inputs_of_any_shape_and_stride_work() -> None:
    layer = linear(48, 40, torch.bfloat16)
    packed = native(layer)
    rows = torch.randn(2, 3, 96).bfloat16()[..., ::2]
    assert torch.equal(packed(rows), packed(rows.contiguous()))
    assert packed(rows).shape == (2, 3, 40)
    assert packed(rows[:, :0]).shape == (2, 0, 40)
    with pytest.raises(TypeError, match=r"torch.bfloat16 is given torch.float32"):
        packed(rows.float())


def test_nan_stays_in_its_row() -> None:
    packed = native(linear(48, 40, torch.bfloat16))
    rows = torch.zeros(3, 48, dtype=torch.bfloat16)
    rows[1, 5] = float("nan")
    output = packed(rows)
    assert output[1].isnan().all()
    assert (output[[0, 2]] == 0).all()


@DTYPES
@pytest.mark.parametrize("width", [1, 12, 48, 65, 576])
def test_norms_equal_float64(width: int, dtype: torch.dtype) -> None:
    rows, weight = (3 * torch.randn(9, width)).to(dtype), torch.randn(width).to(dtype)
    given = torch.empty_like(rows)
    load_library(dtype).llmfw_rms_norm(rows.data_ptr(), weight.data_ptr(), 0.01, 9, width, given.data_ptr())
    exact = rows.double() * torch.rsqrt(rows.double().pow(2).mean(-1, keepdim=True) + 0.01) * weight.double()
    assert (given.double() - exact).abs().max() <= 2 * BOUNDS[dtype] * exact.abs().max()


@pytest.mark.usefixtures("two_threads")
def test_norms_of_many_rows_are_correct() -> None:
    rows, weight = torch.randn(1_100_000, 8), torch.randn(8)
    given = torch.empty_like(rows)
    pointers = rows.data_ptr(), weight.data_ptr(), 0.01, len(rows), 8, given.data_ptr()
    load_library(torch.float32).llmfw_rms_norm(*pointers)
    expected = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 0.01) * weight
    torch.testing.assert_close(given, expected)


def set_threads(count: int) -> None:
    for dtype in library.DTYPES:
        load_library(dtype).llmfw_set_threads(count)


@pytest.fixture
def two_threads() -> Iterator[None]:
    set_threads(2)
    yield
    set_threads(torch.get_num_threads())


@pytest.mark.usefixtures("two_threads")
def test_two_threads_equal_one() -> None:
    check_products(linear(64, 2000, torch.bfloat16), range(1, 20))


@DTYPES
@pytest.mark.usefixtures("two_threads")
def test_surplus_threads_equal_one(dtype: torch.dtype) -> None:
    packed, rows = native(linear(64, 500, dtype)), torch.randn(120, 64).to(dtype)
    for count in (1, 5, 120):
        set_threads(1)
        expected = packed(rows[:count])
        set_threads(19)
        for _ in range(10):
            assert torch.equal(packed(rows[:count]), expected), count


@pytest.mark.usefixtures("two_threads")
def test_rapid_consecutive_calls_all_finish() -> None:
    packed, row = native(linear(64, 700, torch.bfloat16)), torch.randn(1, 64).bfloat16()
    expected = packed(row)
    for threads in (2, 5):
        set_threads(threads)
        assert all(torch.equal(packed(row), expected) for _ in range(3000))


@pytest.mark.usefixtures("two_threads")
def test_threads_sleep_between_calls() -> None:
    packed, row = native(linear(64, 2000, torch.bfloat16)), torch.randn(1, 64).bfloat16()
    packed(row)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_starts_its_own_threads() -> None:
    packed, row = native(linear(64, 2000, torch.bfloat16)), torch.randn(1, 64).bfloat16()
    expected = packed(row)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(packed(row), expected) else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="builds for kinds of x86")
@pytest.mark.parametrize(
    ("cpu", "dtype"),
    [
        ("x86-64", torch.float32),
        *also_each(*((cpu, dtype) for cpu in FLAGS for dtype in dtypes_of(cpu)))[1:],
    ],
)
def test_code_for_other_cpus_is_correct(
    cpu: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if FLAGS[cpu][0] not in flags_of_this_cpu():
        pytest.skip(f"this CPU cannot run {cpu}")
    built = open_library(build(library.DTYPES[dtype], FLAGS[cpu][1:]))
    built.llmfw_set_threads(2)
    monkeypatch.setattr("llmfw.plugins.cpu_native.weights.load_library", {dtype: built}.__getitem__)
    check_products(linear(130, 200, dtype, bias=True), range(1, 41))


def flags_of_this_cpu() -> list[str]:
    return Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()


def test_struct_sizes_match_the_native_code() -> None:
    from llmfw.plugins.cpu_native.structs import EndsStruct, LayerStruct, StackStruct, StepStruct

    sizes = (ctypes.c_int64 * 4)()
    load_library(torch.bfloat16).llmfw_sizes(sizes)
    assert list(sizes) == [
        ctypes.sizeof(struct) for struct in (LayerStruct, StackStruct, StepStruct, EndsStruct)
    ]
