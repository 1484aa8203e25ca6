"""The properties of a layer that a FlashInfer plan depends on. Layers with equal properties share a plan."""

from __future__ import annotations

from typing import NamedTuple

from llmfw.core import LayerSpec


class Kind(NamedTuple):
    """The geometry of layers, and how they compute and mask scores.

    Attributes:
        num_heads, num_kv_heads, head_dim: as in `LayerSpec`.
        scale: factor applied to query·key.
        window_left: number of earlier tokens that a token attends to; -1: all.
        soft_cap: soft cap on the scores; 0: none.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window_left: int
    soft_cap: float

    @classmethod
    def of(cls, layer: LayerSpec) -> Kind:
        """Return a layer's kind."""
        window_left = -1 if layer.sliding_window is None else layer.sliding_window - 1
        heads = layer.num_heads, layer.num_kv_heads, layer.head_dim
        return cls(*heads, layer.scale, window_left, layer.softcap or 0.0)

    @property
    def num_shared(self) -> int:
        """Number of query heads per KV head."""
        return self.num_heads // self.num_kv_heads
