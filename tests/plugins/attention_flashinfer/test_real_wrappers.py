"""The backend with FlashInfer's own wrappers: all of its Python runs, only the compiled functions are stood in for.

So what a wrapper checks, copies and hands on is what it would on a GPU, up to the call into its kernels.
"""

from __future__ import annotations

import importlib
import runpy
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_dtype import KV_DTYPES
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention

from .conftest import AnywhereAttention
from .paged_attention import attend_pages
from .test_backend import single_tokens
from .test_graphs import static

pytestmark = pytest.mark.filterwarnings("ignore")
numbers = count(1)
SCRIPT = Path(__file__).parents[3] / "docs" / "benchmarks" / "gpu" / "flashinfer_kernels.py"
NHD, NON_CAUSAL, CAUSAL = 0, 0, 1


def plan(
    float_workspace: torch.Tensor, integers: torch.Tensor, pinned: torch.Tensor, *rest: Any
) -> list[int]:
    """Leave a number on the device, as the compiled function leaves its work split; return it."""
    number = next(numbers)
    integers[:8].view(torch.int64).fill_(number)
    assert len(rest) in (16, 12)  # as prefill's, or decode's: a compiled function takes no other number
    return [number]


def is_there(integers: torch.Tensor, planned: list[int]) -> bool:
    """Return whether no other plan has overwritten this one."""
    return integers[:8].view(torch.int64).tolist() == planned


def run_prefill(*given: Any) -> None:
    """Do what the compiled function for prompts, and for single tokens on tensor cores, does."""
    _, integers, planned, query, keys, values, query_indptr, *pages = given[:10]
    out, _, mask, layout, window_left = given[10:15]
    soft_cap, scale = given[22:24]
    assert is_there(integers, planned)
    assert layout == NHD
    assert mask == CAUSAL or (mask == NON_CAUSAL and len(query) == len(query_indptr) - 1)
    attend_pages(
        *(query, (keys, values), out, query_indptr, tuple(pages)),
        scale=scale,
        window_left=window_left,
        soft_cap=soft_cap,
    )


def run_decode(*given: Any) -> None:
    """Do what the compiled function for single tokens does."""
    _, integers, planned, query, keys, values, *pages = given[:9]
    out, _, layout, window_left = given[9:13]
    soft_cap, scale = given[15:17]
    assert is_there(integers, planned)
    assert layout == NHD
    attend_pages(
        *(query, (keys, values), out, torch.arange(len(query) + 1), tuple(pages)),
        scale=scale,
        window_left=window_left,
        soft_cap=soft_cap,
    )


@pytest.fixture
def asked() -> set[tuple[Any, ...]]:
    """Return which compiled modules were asked for: a name and what FlashInfer makes a module's name of."""
    return set()


@pytest.fixture
def wrappers(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, asked: set[tuple[Any, ...]]
) -> type[FlashInferAttention]:
    """Put stand-ins in the place of what is compiled; return the backend."""
    for module in ("tvm_ffi", "pynvml", "flashinfer"):
        pytest.importorskip(module, reason=f"{module} is not installed")

    def prefill(*arguments: Any) -> SimpleNamespace:
        asked.add(("batch_prefill", *arguments))
        return SimpleNamespace(plan=plan, paged_run=run_prefill)

    def decode(*arguments: Any) -> SimpleNamespace:
        asked.add(("batch_decode", *arguments))
        return SimpleNamespace(plan=plan, run=run_decode)

    for name in ("flashinfer.decode", "flashinfer.prefill"):
        monkeypatch.setattr(importlib.import_module(name), "get_batch_prefill_module", prefill)
    monkeypatch.setattr(importlib.import_module("flashinfer.decode"), "get_batch_decode_module", decode)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, pin_memory=False, **more: empty(*args, **more))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return AnywhereAttention


class TestRealWrappers(AttentionBackendTests):
    @pytest.fixture
    def backend(self, wrappers: type[FlashInferAttention]) -> type[AttentionBackend]:
        return wrappers

    @pytest.fixture(params=[torch.bfloat16], ids=["bf16"])
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        found: torch.dtype = request.param
        return found

    @pytest.fixture
    def head_dim(self) -> int:
        return 64


@pytest.mark.parametrize("num_heads", [4, 8], ids=["CUDA cores", "tensor cores"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_graph_replays_are_correct(
    wrappers: type[FlashInferAttention], num_heads: int, page_size: int
) -> None:
    def make(*lengths: int) -> Any:
        return single_tokens(*lengths, page_size=page_size, num_heads=num_heads)

    whole = make(3, 40, 8, 1)
    built = whole.build(wrappers)
    for size in (4, 2, 4, 2):
        case = static(make(3, 40, 8, 1), size)
        built.plan(case.batch)
        found = case.forward(built).double()
        torch.testing.assert_close(found, case.expected()[:size], atol=1e-5, rtol=1e-5)


def test_steps_of_different_sizes_may_alternate(wrappers: type[FlashInferAttention]) -> None:
    cases = [single_tokens(*lengths, num_heads=8) for lengths in ((3, 90, 7, 1), (5,), (2, 30))]
    built = cases[0].build(wrappers)
    for case in cases:
        built.storage = case.storage
        built.plan(case.batch)
        torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        ({"num_heads": 4}, []),
        ({"num_heads": 8, "head_dim": 128}, ["--head-dim", "128"]),
        ({"num_heads": 4, "sliding_window": 9, "softcap": 30.0}, ["--window", "--soft-cap"]),
        ({"num_heads": 4}, ["--kv-cache-dtype", "fp8_e4m3"]),
        ({"num_heads": 8}, ["--kv-cache-dtype", "fp8_e5m2"]),
    ],
)
def test_the_script_compiles_the_kernels_models_request(
    wrappers: type[FlashInferAttention], asked: set[Any], layer: dict[str, Any], options: list[str]
) -> None:
    spec = make_layer(**({"head_dim": 64} | layer))
    stored_as = KV_DTYPES.get("".join(options[-1:]), torch.bfloat16)
    AttentionCase(spec, [(0, 1)], 1, torch.bfloat16, stored_as=stored_as).build(wrappers)
    script = runpy.run_path(str(SCRIPT))
    shape = script["shape"](script["parse"](["--head-dim", "64", *options]))
    prefill, decode = ("batch_prefill", "fa2", *shape, False), ("batch_decode", *shape)
    assert asked == ({prefill, decode} if layer["num_heads"] == 4 else {prefill})
