"""The backend with FlashInfer's own wrappers: all of its Python runs, only the compiled functions are stood in for.

So what a wrapper checks, copies and hands on is what it would on a GPU, up to the call into its kernels.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from llmfw.core.attention import AttentionBackend
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention

from .conftest import AnywhereAttention, FakeEvent
from .paged_attention import attend_pages
from .test_backend import single_tokens
from .test_graphs import static

pytestmark = pytest.mark.filterwarnings("ignore")
numbers = count(1)
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
def wrappers(monkeypatch: pytest.MonkeyPatch) -> type[FlashInferAttention]:
    """Put stand-ins in the place of what is compiled, and of what torch lacks without a GPU; return the backend."""
    for module in ("tvm_ffi", "pynvml", "flashinfer"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    prefill: Any = lambda *args: SimpleNamespace(plan=plan, paged_run=run_prefill)
    decode: Any = lambda *args: SimpleNamespace(plan=plan, run=run_decode)
    inner: list[ModuleType] = [
        importlib.import_module(f"flashinfer.{name}") for name in ("decode", "prefill")
    ]
    for module in inner:
        monkeypatch.setattr(module, "get_batch_prefill_module", prefill)
    monkeypatch.setattr(inner[0], "get_batch_decode_module", decode)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, pin_memory=False, **more: empty(*args, **more))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    few = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: few)
    monkeypatch.setattr("llmfw.plugins.attention_flashinfer.scratch.RECOMMENDED_BYTES", 0)
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
def test_replays_of_a_graph_are_right(
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


def test_steps_of_any_size_follow_one_another(wrappers: type[FlashInferAttention]) -> None:
    cases = [single_tokens(*lengths, num_heads=8) for lengths in ((3, 90, 7, 1), (5,), (2, 30))]
    built = cases[0].build(wrappers)
    for case in cases:
        built.storage = case.storage
        built.plan(case.batch)
        torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)
