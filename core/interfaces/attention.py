"""The interface of an attention backend, which computes attention over paged keys and values.

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
        layers, storage, options: the constructor's arguments.
        has_own_threads: whether it computes on its own threads, not on torch's (see `ModulePass`).
    """

    has_own_threads = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o attention.key=value`. A backend with options overrides this."""

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

        Called only if `--kv-cache-dtype` names another dtype. A backend that supports it writes with `storage.write`, or
        in the same way (`llmfw.core.interfaces.kv_dtype`), and multiplies what it reads by `storage.scales(layer.index)`.

        The default returns a reason.

        Args:
            device: device of the storage.
            dtype: dtype of queries, new keys and new values, and of the result of `forward`.
            stored_as: dtype of the storage.
        """
        from .kv_dtype import dtype_name  # brings torch, as only those who call this have it already

        return f"it keeps keys and values in the model's dtype, {dtype_name(dtype)}, not in {dtype_name(stored_as)}"

    def graph_unsupported(self) -> str | None:
        """Return why steps of single tokens cannot be captured in a CUDA graph, as a sentence, or None if they can.

        If they can, the engine calls `plan` for a step with `batch.is_static` before each replay, outside of the graph,
        but `forward` only during capture. So the data that `forward` reads must be at the same addresses after each plan
        of the same number of sequences, and its kernel launches must not depend on lengths.

        The default returns a reason; the engine then computes the backend's steps without graphs.
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
