"""A stand-in for FlashInfer, on any device: takes what the real one takes, and computes it with torch.

Each call is bound to the real function's signature. Each plan leaves its number in the integers on the device, as the
real one leaves its work split there, and `run` looks whether it is still there. A wrapper of a CUDA graph reads its
fixed buffers when it runs, whatever it was planned with, as a graph would.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch

from .paged_attention import attend_pages
from .signatures import recorded

SIGNATURES = recorded()
MOST_WORKSPACE = 8 << 20
calls: list[tuple[str, dict[str, Any]]] = []
"""Name and arguments of each call, in order; cleared by the fixture that installs this module."""
_numbers: Iterator[int] = count(1)


def _bind(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return a call's arguments by name; those with defaults that were not given are None."""
    bound = SIGNATURES[name].bind(*args, **kwargs)
    bound.apply_defaults()
    calls.append((name, bound.arguments))
    return bound.arguments


def _check(tensor: torch.Tensor, device: torch.device, *shape: int) -> None:
    assert tensor.dtype == torch.int32
    assert tensor.device == device
    assert tensor.shape == shape


HOST = torch.device("cpu")


class _Wrapper:
    """What both wrappers have."""

    causal: bool
    cuda_graph = False

    def _start(self, given: dict[str, Any]) -> None:
        assert given["kv_layout"] == "NHD"
        self.float_workspace = given["float_workspace_buffer"]
        assert self.float_workspace.dtype == torch.uint8
        self.device = self.float_workspace.device
        self.integers = torch.zeros(MOST_WORKSPACE, dtype=torch.uint8, device=self.device)
        self.planned: dict[str, Any] | None = None

    def _plan(self, given: dict[str, Any]) -> None:
        """Take over what `run` needs, and leave a number on the device."""
        self.planned = given
        self.number = next(_numbers)
        self.integers[:8].view(torch.int64).fill_(self.number)

    def _take(
        self, indptr: torch.Tensor, indices: torch.Tensor, last_page_len: torch.Tensor, page_size: int
    ) -> None:
        """Check a batch's pages and keep them, or copy them to where the graph reads them."""
        size = len(last_page_len)
        _check(indptr, HOST, size + 1)
        _check(last_page_len, HOST, size)
        _check(indices, self.device, len(indices))
        assert indptr[-1] == len(indices)
        assert all(1 <= length <= page_size for length in last_page_len.tolist())
        if not self.cuda_graph:
            self.pages = indptr, indices, last_page_len
            return
        assert size == len(self.pages[2])
        self.pages[0].copy_(indptr, non_blocking=True)
        self.pages[1][: len(indices)].copy_(indices)
        self.pages[2].copy_(last_page_len, non_blocking=True)

    def _run(self, query_indptr: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        plan = self.planned
        assert plan is not None
        query, (keys, values), out = given["q"], given["paged_kv_cache"], given["out"]
        head_dim = plan.get("head_dim") or plan["head_dim_qk"]
        assert query.dtype == plan["q_data_type"]
        assert keys.dtype == values.dtype == plan["kv_data_type"]
        assert query.shape[1:] == (plan["num_qo_heads"], head_dim)
        assert keys.shape[1:] == (plan["page_size"], plan["num_kv_heads"], head_dim)
        assert keys.stride() == values.stride()
        assert query.stride(-1) == 1
        assert out.is_contiguous()
        assert out.shape == query.shape
        assert {tensor.device for tensor in (query, keys, values, out)} == {self.device}
        assert given["q_scale"] is None
        key_scale, value_scale = (
            1.0 if given[name] is None else given[name] for name in ("k_scale", "v_scale")
        )
        assert isinstance(key_scale, float)
        assert isinstance(value_scale, float)
        self.compute(query, keys, values, out, query_indptr, key_scale)
        out *= value_scale
        return out

    def compute(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
        query_indptr: torch.Tensor,
        key_scale: float,
    ) -> None:
        """Attend in float64, if the plan is still there."""
        plan = self.planned
        assert plan is not None
        assert int(self.integers[:8].view(torch.int64)[0]) == self.number, (
            "another plan has overwritten this one"
        )
        attend_pages(
            query,
            (keys, values),
            out,
            query_indptr,
            self.pages,
            scale=plan["sm_scale"] * key_scale,
            window_left=plan["window_left"],
            soft_cap=plan["logits_soft_cap"],
        )


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    """Single tokens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _bind("BatchDecodeWithPagedKVCacheWrapper.__init__", self, *args, **kwargs)
        self._start(given)
        assert given["backend"] == "fa2"
        self.tensor_cores = bool(given["use_tensor_cores"])
        self.cuda_graph = bool(given["use_cuda_graph"])
        if self.cuda_graph:
            self.pages = (
                given["paged_kv_indptr_buffer"],
                given["paged_kv_indices_buffer"],
                given["paged_kv_last_page_len_buffer"],
            )
            size = len(self.pages[2])
            for buffer, num in zip(self.pages, (size + 1, len(self.pages[1]), size), strict=True):
                _check(buffer, self.device, num)

    def reset_workspace_buffer(self, *args: Any, **kwargs: Any) -> None:
        given = _bind("BatchDecodeWithPagedKVCacheWrapper.reset_workspace_buffer", self, *args, **kwargs)
        self.float_workspace, self.integers = given["float_workspace_buffer"], given["int_workspace_buffer"]
        assert self.integers.dtype == self.float_workspace.dtype == torch.uint8
        assert self.integers.device == self.float_workspace.device == self.device

    def plan(self, *args: Any, **kwargs: Any) -> None:
        given = _bind("BatchDecodeWithPagedKVCacheWrapper.plan", self, *args, **kwargs)
        _check(given["seq_lens"], HOST, len(given["last_page_len"]))
        group = given["num_qo_heads"] // given["num_kv_heads"]
        assert self.tensor_cores or group in (1, 2, 3, 4, 8)
        self._take(given["indptr"], given["indices"], given["last_page_len"], given["page_size"])
        self._plan(given)

    def run(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = _bind("BatchDecodeWithPagedKVCacheWrapper.run", self, *args, **kwargs)
        size = len(self.pages[2])
        assert len(given["q"]) == size
        return self._run(torch.arange(size + 1), given)


def fast_decode_plan(*args: Any, **kwargs: Any) -> None:
    """Plan a wrapper that has been planned before. A graph's buffers are the caller's to fill; others are kept."""
    given = _bind("fast_decode_plan", *args, **kwargs)
    wrapper = given["self"]
    assert wrapper.planned is not None, "its first plan has to be a whole one"
    indptr, indices, last_page_len = given["indptr"], given["indices"], given["last_page_len"]
    size = len(last_page_len)
    _check(given["global_override_indptr_cpu"], HOST, size + 1)
    if given["page_size"] > 1:
        _check(last_page_len, HOST, size)
    if wrapper.cuda_graph:
        assert size == len(wrapper.pages[2])
        assert len(indices) <= len(wrapper.pages[1])
    else:
        _check(indptr, wrapper.device, size + 1)
        _check(indices, wrapper.device, len(indices))
        _check(last_page_len, wrapper.device, size)
        wrapper.pages = indptr, indices, last_page_len
    wrapper._plan(given)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    """Prompts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _bind("BatchPrefillWithPagedKVCacheWrapper.__init__", self, *args, **kwargs)
        self._start(given)
        assert given["backend"] in ("fa2", "fa3")

    def plan(self, *args: Any, **kwargs: Any) -> None:
        given = _bind("BatchPrefillWithPagedKVCacheWrapper.plan", self, *args, **kwargs)
        assert given["causal"] is True
        size = len(given["qo_indptr"]) - 1
        _check(given["qo_indptr"], HOST, size + 1)
        _check(given["seq_lens"], HOST, size)
        assert given["max_sequence_kv"] is None, "with it, 0.6.12 reads a variable that it has not set"
        self._take(
            given["paged_kv_indptr"],
            given["paged_kv_indices"],
            given["paged_kv_last_page_len"],
            given["page_size"],
        )
        self._plan(given)

    def run(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = _bind("BatchPrefillWithPagedKVCacheWrapper.run", self, *args, **kwargs)
        assert self.planned is not None
        return self._run(self.planned["qo_indptr"], given)
