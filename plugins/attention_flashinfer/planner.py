"""FlashInfer's wrappers for the layers of one kind, their plans, and the memory that they share.

    decode      decoding sequences, steps of any size
    graphs[B]   decoding sequences, CUDA graphs of B sequences; reads fixed buffers
    prefill     prompts, whole or chunked, that also attend to cached tokens

A wrapper keeps its plan as integers on the device. A step plans its decoding sequences once, either for a
graph or without one, so `decode` and `graphs` share these integers. The same step may have prompts, too, so
`prefill` has integers of its own. All wrappers share the scratch memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch

from .kind import Kind
from .pages import Pages, Rows
from .scratch import Scratch, bytes_for_graph

DECODE_INTEGERS_BYTES = 1 << 20
"""Size of the buffer for a decode plan. A plan needs at most a dozen bytes per sequence and per concurrent
thread block."""

PLAN_BYTES = DECODE_INTEGERS_BYTES + (8 << 20)
"""Size of the buffers for the plans of one kind of layers. FlashInfer allocates the prompts' buffer."""


@dataclass(frozen=True, slots=True)
class GraphBuffers:
    """Device buffers, int32, that a CUDA graph of B sequences reads instead of a step's `Pages`.

    Attributes:
        indptr: [B + 1].
        indices: page ids, with room for the most pages that B sequences can have.
        last_page_len: [B].
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor

    def fill(self, pages: Pages) -> None:
        """Copy a step's pages into the buffers."""
        self.indptr.copy_(pages.device.indptr)
        self.last_page_len.copy_(pages.device.last_page_len)
        self.indices[: len(pages.indices)].copy_(pages.indices)


class Planner:
    """Plans FlashInfer's wrappers for the layers of one kind.

    Args:
        flashinfer: the module `flashinfer`.
        kind: kind of the layers.
        dtype: dtype of queries.
        stored_as: dtype of stored keys and values.
        page_size: tokens in a page.
        scratch: scratch memory, shared with the planners of other kinds.
        tensor_cores: whether to decode with the prefill kernel, which uses tensor cores.
    """

    def __init__(
        self,
        flashinfer: ModuleType,
        kind: Kind,
        dtype: torch.dtype,
        stored_as: torch.dtype,
        page_size: int,
        scratch: Scratch,
        *,
        tensor_cores: bool,
    ) -> None:
        self._flashinfer = flashinfer
        self._kind = kind
        self._page_size = page_size
        self._scratch = scratch
        self._tensor_cores = tensor_cores
        self._prefill: Any = None
        self._graphs: dict[int, Any] = {}
        self._has_decoded = False
        self._common = {
            "num_qo_heads": kind.num_heads,
            "num_kv_heads": kind.num_kv_heads,
            "page_size": page_size,
            "window_left": kind.window_left,
            "logits_soft_cap": kind.soft_cap,
            "sm_scale": kind.scale,
            "q_data_type": dtype,  # FlashInfer's default is float16
            "kv_data_type": stored_as,
        }

    def plan_decode(self, pages: Pages) -> Any:
        """Plan a step's decoding sequences and return their wrapper."""
        if self._has_decoded and self._page_size == 1:
            self._plan_again(self._decode, pages, pages.device)
        else:
            self._plan_whole(self._decode, pages)
            self._has_decoded = True
        return self._decode

    def use_prefill(self, kernels: str) -> None:
        """Choose the kernels for prompts, "fa2" or "fa3". Call this before `plan_prefill`."""
        self._prefill = self._flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            self._scratch.at_least(0), kv_layout="NHD", backend=kernels
        )

    def plan_prefill(self, pages: Pages) -> Any:
        """Plan sequences that end with one or more new tokens; return their wrapper."""
        self._prefill.plan(
            qo_indptr=pages.host.query_indptr,
            paged_kv_indptr=pages.host.indptr,
            paged_kv_indices=pages.indices,
            paged_kv_last_page_len=pages.host.last_page_len,
            head_dim_qk=self._kind.head_dim,
            causal=True,
            seq_lens=pages.host.kv_lens,
            max_token_per_sequence=pages.most_queries,
            **self._common,
        )
        return self._prefill

    def plan_graph(self, pages: Pages, buffers: GraphBuffers, num_processors: int) -> Any:
        """Plan a step for a CUDA graph; return the wrapper for graphs with that number of sequences.

        Args:
            pages: pages of the step.
            buffers: buffers that hold `pages`; must be the same object for the same number of sequences.
            num_processors: number of multiprocessors of the device.
        """
        size = len(buffers.last_page_len)
        if size in self._graphs:
            self._plan_again(self._graphs[size], pages, pages.host)
            return self._graphs[size]
        scratch = self._scratch.at_least(bytes_for_graph(self._kind, num_processors, size))
        self._graphs[size] = self._new_decode(
            scratch,
            use_cuda_graph=True,
            paged_kv_indptr_buffer=buffers.indptr,
            paged_kv_indices_buffer=buffers.indices,
            paged_kv_last_page_len_buffer=buffers.last_page_len,
        )
        self._plan_whole(self._graphs[size], pages)
        return self._graphs[size]

    def _plan_whole(self, wrapper: Any, pages: Pages) -> None:
        wrapper.plan(
            indptr=pages.host.indptr,
            indices=pages.indices,
            last_page_len=pages.host.last_page_len,
            head_dim=self._kind.head_dim,
            seq_lens=pages.host.kv_lens,
            **self._common,
        )

    def _plan_again(self, wrapper: Any, pages: Pages, rows: Rows) -> None:
        """Plan a wrapper that `_plan_whole` has planned before, in less time.

        `fast_decode_plan` avoids a copy to the device. It also avoids a search for the longest sequence in
        Python, which takes a microsecond or more per sequence.

        For `decode`, call this only if a page holds one token. With larger pages, FlashInfer would copy the
        last pages' lengths from the device to the host, and block until the copy ends.

        Args:
            rows: row pointers of the sequences. For a graph's wrapper, they may be in host memory, because
                the wrapper copies them. For `decode`, they must be on the device, because the wrapper keeps
                them.
        """
        self._flashinfer.fast_decode_plan(
            wrapper,
            indptr=rows.indptr,
            indices=pages.indices,
            last_page_len=rows.last_page_len,
            head_dim=self._kind.head_dim,
            global_override_indptr_cpu=pages.host.indptr,
            **self._common,
        )

    @cached_property
    def _decode(self) -> Any:
        return self._new_decode(self._scratch.at_least(0))

    @cached_property
    def _integers(self) -> torch.Tensor:
        return self._scratch.at_least(0).new_empty(DECODE_INTEGERS_BYTES)

    def _new_decode(self, scratch: torch.Tensor, **graph: Any) -> Any:
        wrapper = self._flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            scratch, kv_layout="NHD", use_tensor_cores=self._tensor_cores, backend="fa2", **graph
        )
        # By default, the wrapper of each graph size would allocate 8 MiB on the device and 8 MiB of pinned
        # memory.
        wrapper.reset_workspace_buffer(scratch, self._integers)
        return wrapper
