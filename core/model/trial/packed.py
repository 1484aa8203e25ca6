"""Runs whole sequences, packed into one row, through a model, without a KV cache or an attention backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..attention.hf_attention import Step
from ..states.module_mixer import ModuleCall
from ..states.row_states import RowStates, starting_parts

NUM_TOKENS = 4


def packed_logits(model: nn.Module, vocab_size: int) -> torch.Tensor:
    """Return the logits, [T, vocab], of a few fixed sequences of different lengths, packed into one row."""
    sequences = [
        [(7 * i + 3 + 11 * n) % vocab_size for i in range(n)] for n in (1, NUM_TOKENS, 2 * NUM_TOKENS)
    ]
    return run_in_one_row(model, sequences)


def run_in_one_row(model: nn.Module, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits, [T, vocab], of sequences packed into one row, with causal attention within each
    sequence.

    Ignores sliding windows, scales and soft caps (see `attend_causally`).
    """
    return run_packed(model, sequences, Packed([len(ids) for ids in sequences]))


def run_packed(
    model: nn.Module,
    sequences: Sequence[Sequence[int]],
    step: Step,
    positions: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return the logits, [T, vocab], of sequences packed into one row, with attention computed by `step`.

    Args:
        positions: position of each of the T tokens; None: each sequence begins at 0.
    """
    device = next(model.parameters()).device
    ids = torch.tensor([[token for seq in sequences for token in seq]], device=device)
    if positions is None:
        positions = [i for seq in sequences for i in range(len(seq))]
    places = torch.tensor([list(positions)], device=device)
    with torch.inference_mode():
        output: torch.Tensor = model(
            input_ids=ids, position_ids=places, use_cache=False, llmfw_step=step
        ).logits
    return output[0].float()


class Packed:
    """Computes causal attention within each of several packed sequences. Implements `hf_attention.Step`.

    Args:
        lengths: number of tokens of each sequence.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: object,
    ) -> torch.Tensor:
        parts = zip(*(tensor.split(self._lengths, dim=2) for tensor in (query, key, value)), strict=True)
        return torch.cat([attend_causally(q, k, v) for q, k, v in parts], dim=1)

    def mix(self, call: ModuleCall) -> Any:
        """Return the output of a module that keeps states, for sequences that start."""
        return RowStates(starting_parts(self._lengths)).mix(call)


def attend_causally(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the output of plain causal attention, [1, T, heads, v_head_dim].

    Ignores the layer's scale, window and soft cap, which do not matter for checks of a model.

    Args:
        query: [1, heads, T, head_dim].
        key: [1, kv_heads, T, head_dim].
        value: [1, kv_heads, T, v_head_dim].
    """
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
