"""The backend `cpu` against attention written out in float64, at the borders of its blocks, chunks and pieces."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.testing.attention import TOLERANCES, AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.cpu_native.attention import CpuAttention
from llmfw.plugins.cpu_native.attention_structs import DTYPES, attention_library, with_signatures
from llmfw.plugins.cpu_native.cpu import has_bfloat16_pairs
from llmfw.plugins.cpu_native.libraries import build
from llmfw.plugins.cpu_native.library import why_not

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

BLOCK, CHUNK = 64, 256
BORDERS = [
    *((stored, 1) for stored in (0, BLOCK - 1, BLOCK, CHUNK - 1, CHUNK, 2 * CHUNK + 3)),
    *((stored, new) for stored in (0, BLOCK - 3, CHUNK) for new in (2, 33, BLOCK + 1)),
    (CHUNK - 5, CHUNK + 7),
]
"""Tokens stored, and new ones, of each sequence."""


@pytest.fixture
def threads() -> Iterator[Any]:
    """Return a function that sets how many threads work, until the test ends."""
    libraries = [attention_library(dtype) for dtype in DTYPES]
    before = libraries[0].llmfw_num_threads()

    def set_all(count: int) -> None:
        for library in libraries:
            library.llmfw_set_threads(count)

    yield set_all
    set_all(before)


def outputs(case: AttentionCase, backend: type[AttentionBackend] = CpuAttention) -> torch.Tensor:
    return case.run(backend)


class InPairs(CpuAttention):
    """Multiplies bfloat16 in pairs, also where that is not faster."""

    class Options(CpuAttention.Options, frozen=True):
        products: Literal["auto", "pairs", "float32"] = "pairs"


class AsFloat32(CpuAttention):
    class Options(CpuAttention.Options, frozen=True):
        products: Literal["auto", "pairs", "float32"] = "float32"


HAS_PAIRS = why_not(torch.bfloat16) is None and has_bfloat16_pairs()
PRODUCTS = [
    AsFloat32,
    pytest.param(InPairs, marks=pytest.mark.skipif(not HAS_PAIRS, reason="no AVX512_BF16")),
]


class TestCpuAttention(AttentionBackendTests):
    @pytest.fixture(params=PRODUCTS)
    def backend(self, request: pytest.FixtureRequest) -> type[AttentionBackend]:
        chosen: type[AttentionBackend] = request.param
        return chosen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("page_size", [1, 5, 16])
@pytest.mark.parametrize("head_dim", [2, 64, 80, 128])
@pytest.mark.parametrize("backend", PRODUCTS)
def test_lengths_around_every_border_are_correct(
    backend: type[CpuAttention], head_dim: int, page_size: int, dtype: torch.dtype
) -> None:
    layer = make_layer(num_heads=3, num_kv_heads=1, head_dim=head_dim, scale=head_dim**-0.5)
    AttentionCase(layer, BORDERS, page_size, dtype).check(backend, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(2, 2), (3, 1), (8, 2), (7, 1), (8, 1), (100, 1)])
def test_any_head_ratio_works(heads: tuple[int, int], dtype: torch.dtype) -> None:
    layer = make_layer(num_heads=heads[0], num_kv_heads=heads[1], head_dim=32)
    AttentionCase(layer, [(300, 1), (3, 1), (70, 90)], 16, dtype).check(CpuAttention, TOLERANCES[dtype])


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 256, 300])
def test_windows_are_exact_to_the_token(window: int) -> None:
    layer = make_layer(sliding_window=window)
    AttentionCase(layer, BORDERS, 5).check(CpuAttention, TOLERANCES[torch.float32])


@pytest.mark.parametrize(("head_dim", "v_head_dim"), [(24, 40), (192, 128), (256, 256), (64, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_head_and_value_sizes_are_correct(head_dim: int, v_head_dim: int, dtype: torch.dtype) -> None:
    layer = make_layer(head_dim=head_dim, v_head_dim=v_head_dim, scale=head_dim**-0.5)
    AttentionCase(layer, [(270, 1), (100, 70)], 1, dtype).check(CpuAttention, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [5, 64, 300])
@pytest.mark.parametrize("backend", PRODUCTS)
def test_tokens_are_bit_identical_in_any_batch(
    backend: type[CpuAttention], length: int, dtype: torch.dtype, threads: Any
) -> None:
    layer = make_layer(num_heads=9, num_kv_heads=3, head_dim=64)

    def run(*lengths: tuple[int, int]) -> torch.Tensor:
        return outputs(AttentionCase(layer, lengths, 1, dtype), backend)

    threads(1)
    alone = run((length - 1, 1))
    threads(4)
    assert torch.equal(run((length - 1, 1)), alone)
    crowded = run((length - 1, 1), (3, 1), (200, 1), (0, 9))
    assert torch.equal(crowded[:1], alone)
    for new in (2, 5, 33, 64, length):
        if new <= length:
            assert torch.equal(run((length - new, new))[-1:], alone), new


def test_long_sequences_are_split_across_threads(threads: Any) -> None:
    case = AttentionCase(make_layer(num_heads=2, num_kv_heads=1), [(5 * CHUNK - 1, 1)], 16)
    pieces = []
    for count in (1, 8):
        threads(count)
        built = case.build(CpuAttention)
        assert isinstance(built, CpuAttention)
        built.plan(case.batch)
        pieces.append(built.library.llmfw_attention_num_pieces(built.call(case.spec).plan))
    assert pieces == [1, 5]


def test_layers_of_several_kinds_share_a_step(threads: Any) -> None:
    threads(3)
    layers = [make_layer(), make_layer(index=1, sliding_window=70), make_layer(index=2, num_heads=6)]
    cases = [AttentionCase(layer, BORDERS, 1) for layer in layers]
    storage = cases[0].storage
    storage.keys = [case.storage.keys[0] for case in cases]
    storage.values = [case.storage.values[0] for case in cases]
    built = CpuAttention(layers, storage, CpuAttention.Options())
    for _ in range(2):
        built.plan(cases[0].batch)
        for case in cases:
            found = case.forward(built).double()
            torch.testing.assert_close(found, case.expected(), atol=1e-5, rtol=1e-5)


def test_queries_and_keys_may_be_transposed() -> None:
    case = AttentionCase(make_layer(), BORDERS, 1)
    wanted = outputs(case)
    for name in ("query", "key", "value"):
        tensor = getattr(case, name)
        setattr(case, name, tensor.transpose(0, 1).contiguous().transpose(0, 1))
    assert torch.equal(outputs(case), wanted)
    case.query = case.query.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert torch.equal(outputs(case), wanted)


def test_extreme_scores_are_weighted_correctly() -> None:
    layer = make_layer(scale=40.0)
    AttentionCase(layer, BORDERS, 1).check(CpuAttention, 1e-4)


def test_nan_stays_within_its_sequence() -> None:
    case = AttentionCase(make_layer(), [(300, 1), (70, 1), (5, 80)], 1)
    case.query[1] = torch.nan
    found = outputs(case)
    assert found[1].isnan().all()
    others = [0, *range(2, len(found))]
    torch.testing.assert_close(found[others].double(), case.expected()[others], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("query", lambda x: x[:-1]),
        ("key", lambda x: x[:, :1]),
        ("value", lambda x: x.double()),
        ("query", lambda x: x[..., :8]),
    ],
)
def test_tensors_of_wrong_shape_are_named(name: str, change: Any) -> None:
    case = AttentionCase(make_layer(), [(3, 1), (0, 4)], 1)
    setattr(case, name, change(getattr(case, name)))
    with pytest.raises(ValueError, match=f"^{name} is "):
        outputs(case)


def test_a_page_table_of_other_numbers_is_refused() -> None:
    case = AttentionCase(make_layer(), [(3, 1)], 1)
    case.batch = replace(case.batch, page_table=case.batch.page_table.long())
    with pytest.raises(ValueError, match="right are int64, int64 and int32"):
        outputs(case)


@pytest.mark.parametrize(
    ("changes", "device", "dtype", "reason"),
    [
        ({}, "cuda", torch.bfloat16, "it runs on CPUs, not on cuda"),
        ({}, "cpu", torch.float64, "not in float64"),
        ({"head_dim": 33}, "cpu", torch.float32, "even number of dimensions; here they have 33"),
    ],
)
def test_unsupported_settings_are_explained(
    changes: dict[str, int], device: str, dtype: torch.dtype, reason: str
) -> None:
    assert reason in (CpuAttention.unsupported([make_layer(**changes)], device, dtype) or "")


def test_a_model_without_attention_is_left_to_others() -> None:
    """Such as Mamba's, which keeps states alone."""
    assert CpuAttention.unsupported([], "cpu", torch.float32) == "the model has no layers with attention"


@pytest.mark.long
@pytest.mark.parametrize(
    ("march", "needed"), [("x86-64", "sse2"), ("x86-64-v3", "avx2"), ("x86-64-v4", "avx512vl")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_code_for_other_cpus_is_correct(
    march: str, needed: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if needed not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this CPU cannot run {march}")
    library = with_signatures(ctypes.CDLL(str(build(DTYPES[dtype], (f"-march={march}",)))))
    monkeypatch.setattr("llmfw.plugins.cpu_native.attention.attention_library", lambda *_, **__: library)
    layer = make_layer(num_heads=3, num_kv_heads=1, head_dim=80, softcap=3.0, sliding_window=200)
    AttentionCase(layer, BORDERS, 5, dtype).check(CpuAttention, TOLERANCES[dtype])
