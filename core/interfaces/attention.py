"""The interface of an attention backend: what computes attention over paged keys and values.

A backend sees the packed tokens of one step (`ForwardBatch`) and one layer's storage at a time. It knows nothing
of requests, scheduling or sampling. Reading this module imports no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from .layers import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from .forward_batch import ForwardBatch
    from .kv_storage import KVStorage


class AttentionBackend(ABC):
    """Computes attention for the packed tokens of a step, over pages of keys and values.

    Built once, when the model is loaded. Each step calls `plan` once, then `forward` once per layer, in order.

    Args:
        layers: the model's attention layers, by index.
        storage: the keys and values of all pages; `storage.keys[i]` is layer i's, in the dtype `storage.stored_as`.
        options: the backend's own options, an instance of its `Options`.

    Attributes:
        layers, storage, options: what it was built with.
        has_own_threads: it computes on threads of its own, not on torch's (see `ModulePass`).
    """

    has_own_threads = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o attention.key=value`. A backend with options overrides this."""

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Options) -> None:
        self.layers = layers
        self.storage = storage
        self.options = options

    @classmethod
    @abstractmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return why this backend cannot serve such layers on this device, as a sentence, or None if it can."""

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return why it cannot keep keys and values in another dtype than the model's, as a sentence, or None if it can.

        Asked only where `--kv-cache-dtype` names another one. A backend that can writes by `storage.write`, or in the
        same way (`llmfw.core.interfaces.kv_dtype`), and multiplies what it reads by `storage.scales(layer.index)`.

        Here: a reason.

        Args:
            device: where the storage is.
            dtype: of queries, new keys and new values, and of what `forward` returns.
            stored_as: of the storage.
        """
        from .kv_dtype import dtype_name  # brings torch, as only those who call this have it already

        return f"it keeps keys and values in the model's dtype, {dtype_name(dtype)}, not in {dtype_name(stored_as)}"

    def graph_unsupported(self) -> str | None:
        """Return why steps of single tokens cannot be captured in a CUDA graph, as a sentence, or None if they can.

        If they can, a step with `batch.is_static` is planned anew before each replay, outside of the graph, but its
        `forward` is called only while the graph is captured. So what `forward` reads has to stand at the same
        addresses after each plan of so many sequences, and what it launches must not depend on lengths.

        Here: a reason; such a backend's steps are computed one by one.
        """
        return "it does not say that it can"

    @abstractmethod
    def plan(self, batch: ForwardBatch) -> None:
        """Prepare what all layers of this step share: indices, masks, work splits."""

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

        Token t of sequence s attends to all tokens of s up to and including itself (within the window).

        Returns:
            [T, num_heads, v_head_dim], in the dtype of `query`.
        """


__all__ = ["AttentionBackend", "LayerSpec"]
