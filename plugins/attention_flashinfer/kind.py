"""The properties of a layer that a FlashInfer plan depends on. Layers with equal properties share their plans."""

from __future__ import annotations

from typing import NamedTuple

from llmfw.core import LayerSpec


class Kind(NamedTuple):
    """The geometry of layers, and how scores are computed and masked.

    Attributes:
        num_heads, num_kv_heads, head_dim: as in `LayerSpec`.
        scale: factor applied to query·key.
        window_left: how many tokens before itself a token attends to; -1: all.
        soft_cap: 0: none.
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
        """How many query heads share a key head."""
        return self.num_heads // self.num_kv_heads
