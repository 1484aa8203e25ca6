"""The interface of an attention backend, which computes attention over paged keys and values.

A backend handles the packed tokens of one step (`ForwardBatch`), one layer at a time. It is independent of
requests, scheduling and sampling. Importing this module does not import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .layers import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import torch

    from .forward_batch import ForwardBatch
    from .kv_storage import KVStorage


class AttentionBackend(ABC):
    """Computes attention for the packed tokens of a step, over pages of keys and values.

    llmfw builds a backend once, when the model is loaded. In each step, it calls `plan` once, then `forward`
    once per layer, in order.

    Args:
        layers: the model's attention layers, by index.
        storage: the keys and values of all pages; `storage.keys[i]` has the keys of layer i, in the dtype
            `storage.stored_as`.
        options: the backend's own options, an instance of its `Options`.

    Attributes:
        layers, storage, options: the constructor's arguments.
        has_own_threads: whether the backend computes on its own threads instead of torch's (see
            `ModulePass`).
        looks_ahead: whether the backend heeds `ForwardBatch.ends`. Some models let the tokens of an image
            attend to each other in both directions. For a backend that does not look ahead, another one
            computes the steps with such images.
        heeds_selection: whether the backend heeds `ForwardBatch.selected`. A backend that does not cannot serve
            models with layers that select tokens.
    """

    has_own_threads = False
    looks_ahead = False
    heeds_selection = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o attention.key=value`.

        A backend with options overrides this.
        """

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Options) -> None:
        self.layers = layers
        self.storage = storage
        self.options = options

    @classmethod
    def for_part(
        cls, part: Literal["decode", "prefill"], layers: Sequence[LayerSpec], storage: KVStorage, options: Any
    ) -> Self:
        """Build a backend that computes one part of each step; another backend computes the other part.

        By default, builds the same backend as for whole steps. Override this if one part needs less: fewer
        kernels, less memory.

        Args:
            part: "decode": in each batch, all sequences have one token. "prefill": `batch.num_single` is 0.
            layers, storage, options: as for the constructor.
        """
        return cls(layers, storage, options)

    @classmethod
    @abstractmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return the reason why this backend cannot serve these layers on this device; None if it can.

        The reason is a sentence for the log and for errors, such as "it needs an NVIDIA GPU".
        """

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return the reason why this backend cannot store keys and values in `stored_as`; None if it can.

        Called only if `--kv-cache-dtype` names a dtype that is not the model's. A backend that supports the
        dtype writes with `storage.write`, or converts as `llmfw.core.interfaces.kv_dtype` describes. It
        multiplies the keys and values that it reads by `storage.scales(layer.index)`.

        By default, returns a reason for every dtype.

        Args:
            device: device of the storage.
            dtype: dtype of queries, new keys and new values, and of the result of `forward`.
            stored_as: dtype of the storage.
        """
        from .kv_dtype import dtype_name  # imports torch, as callers have already

        return f"it keeps keys and values in the model's dtype, {dtype_name(dtype)}, not in {dtype_name(stored_as)}"

    def graph_unsupported(self) -> str | None:
        """Return the reason why decode steps cannot be captured in a CUDA graph; None if they can.

        If this returns None, the engine calls `plan` with a static batch (`batch.is_static`) before each
        replay, outside of the graph, but calls `forward` only during capture. So the data that `forward`
        reads must be at the same addresses after each `plan` for the same number of sequences, and the kernel
        launches must not depend on lengths.

        By default, returns a reason; the engine then computes all steps without graphs.
        """
        return "it does not say that it can"

    @classmethod
    def step_bytes(
        cls,
        layers: Sequence[LayerSpec],
        options: AttentionBackend.Options,
        device: str,
        *,
        num_sequences: int,
        num_pages: int,
        graph_sizes: Sequence[int],
    ) -> int:
        """Return the device memory in bytes that the backend takes for steps, in addition to the storage.

        Counts what stays allocated, such as scratch memory and the buffers of CUDA graphs, but not tensors of
        a single layer or step. On a GPU, llmfw reduces the storage of keys and values by this amount. Called
        for several numbers of pages, before the storage is allocated.

        By default, returns 0.

        Args:
            layers, options: arguments that the backend will be built with.
            device: device of the storage.
            num_sequences: maximum number of sequences in a step.
            num_pages: maximum number of pages of a sequence.
            graph_sizes: batch sizes of captured steps, ascending; empty: no step is captured.
        """
        return 0

    @abstractmethod
    def plan(self, batch: ForwardBatch) -> None:
        """Prepare the data that all layers of this step share: indices, masks, work splits."""

    @abstractmethod
    def forward(
        self,
        query: torch.Tensor,  # [T, num_heads, head_dim]
        key: torch.Tensor,  # [T, num_kv_heads, head_dim]
        value: torch.Tensor,  # [T, num_kv_heads, v_head_dim]
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,  # [num_heads]
    ) -> torch.Tensor:
        """Write the new keys and values to `batch.slots`, and return the attention output.

        Token t of sequence s attends to all tokens of s up to and including itself (within the window). With
        `batch.ends`, it attends to all tokens of s at positions below `batch.ends[t]` that are not too far
        back for the window.

        Returns:
            [T, num_heads, v_head_dim], in the dtype of `query`.
        """


__all__ = ["AttentionBackend", "LayerSpec"]
