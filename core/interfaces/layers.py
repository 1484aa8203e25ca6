"""Description of an attention layer, for the KV storage and attention backends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """The geometry of one attention layer, found by probing the loaded model.

    Attributes:
        index: position among the model's attention layers, from 0.
        num_heads, num_kv_heads: number of query heads, and number of KV heads; num_heads is a multiple of
            num_kv_heads.
        head_dim, v_head_dim: dimension of a query or key head, and of a value head.
        scale: factor applied to query·key before the softmax.
        sliding_window: number of tokens that a token attends to, up to and including itself; None: all.
        softcap: bound of the scores, which become `softcap * tanh(score / softcap)`; None: scores stay
            unchanged.
        has_sinks: whether the softmax has one learned extra logit per head (gpt-oss).
        selects: whether each token attends only to tokens that the model selects (DeepSeek V3.2), by
            `ForwardBatch.selected`.
        index_size: number of elements of the key that the model keeps for each token to select by; 0: the layer keeps
            none.
        position: position among all layers of the model, from 0; None: equal to `index`, because all layers
            have attention.
    """

    index: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    scale: float
    sliding_window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False
    selects: bool = False
    index_size: int = 0
    position: int | None = None

    @property
    def num_kv_elements(self) -> int:
        """Number of elements of a token's keys and values, with its index key."""
        return self.num_kv_heads * (self.head_dim + self.v_head_dim) + self.index_size

    @property
    def model_index(self) -> int:
        """Position among all layers of the model, from 0."""
        return self.index if self.position is None else self.position
