"""Computes attention in plain float32 code for comparisons, without a KV cache or a backend.

A `LayerSpec` describes each layer's attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from llmfw.core.interfaces.layers import LayerSpec


def plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: LayerSpec,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention output of the last T of S tokens of a sequence, [1, T, heads, v_head_dim].

    Args:
        query: [1, heads, T, head_dim].
        key: [1, kv_heads, S, head_dim].
        value: [1, kv_heads, S, v_head_dim].
        layer: scale, window and soft cap of the layer.
        sinks: [heads], logits that take part in the softmax without a value; None: the layer has none.
    """
    shared = query.shape[1] // key.shape[1]
    keys, values = (each.float().repeat_interleave(shared, dim=1) for each in (key, value))
    scores = query.float() @ keys.transpose(2, 3) * layer.scale
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    hidden = _hidden(query.shape[2], key.shape[2], layer.sliding_window, query.device)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        column = sinks.float().view(1, -1, 1, 1).expand(-1, -1, scores.shape[2], 1)
        scores = torch.cat([scores, column], dim=3)
    weights = scores.softmax(dim=3)[..., : keys.shape[2]]
    return (weights @ values).to(value.dtype).transpose(1, 2)


class PlainStep:
    """Computes the attention of packed sequences, each from its first token. Implements `hf_attention.Step`.

    Args:
        layers: attention layers by index.
        lengths: number of tokens of each sequence.
    """

    def __init__(self, layers: Sequence[LayerSpec], lengths: Sequence[int]) -> None:
        self._layers = layers
        self._lengths = list(lengths)

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        s_aux: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        layer = self._layers[module.layer_idx]
        parts = zip(*(tensor.split(self._lengths, dim=2) for tensor in (query, key, value)), strict=True)
        return torch.cat([plain_attention(q, k, v, layer, s_aux) for q, k, v in parts], dim=1)


def _hidden(queries: int, keys: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return a mask, [queries, keys], that is True if the key is hidden from the query."""
    places = torch.arange(keys, device=device)
    distances = places[keys - queries :, None] - places
    return (distances < 0) | (distances >= (keys if window is None else window))
