"""The forward pass of a native decoder and its head, without the per-step overhead of transformers.

transformers builds output dictionaries and searches keyword arguments. On a small model, this host work is a
measurable part of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .decoder import NativeDecoder
from .ends import Ends


@dataclass(frozen=True, slots=True)
class Logits:
    """The output of a causal language model.

    Attributes:
        logits: logits of the requested tokens, [1, T, vocab].
    """

    logits: torch.Tensor


class HeadedForward:
    """The `forward` of a model that consists of only a decoder and a head.

    Args:
        decoder: decoder that computes hidden states.
        head: module that computes logits from hidden states.
    """

    def __init__(self, decoder: NativeDecoder, head: nn.Module) -> None:
        self._decoder = decoder
        self._head = head
        self._ends = Ends.around(decoder, head)

    def __call__(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: object = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        *,
        llmfw_step: Any,
        **kwargs: object,
    ) -> Logits:
        """Return the logits of one packed row, for the tokens that `logits_to_keep` selects.

        Takes the arguments of transformers' `forward`. `logits_to_keep`: 0: all tokens; another number: that
        many last tokens; a tensor: indices of tokens.
        """
        is_asked_as_usual = inputs_embeds is None and past_key_values is None and not use_cache
        if (
            self._ends is not None
            and is_asked_as_usual
            and input_ids is not None
            and position_ids is not None
        ):
            logits = self._ends.logits(input_ids, position_ids, logits_to_keep, llmfw_step)
            if logits is not None:
                return Logits(logits[None])
        hidden = self._decoder.hidden_states(
            input_ids, position_ids, past_key_values, inputs_embeds, use_cache, llmfw_step
        )
        if isinstance(logits_to_keep, torch.Tensor):
            hidden = hidden[logits_to_keep]
        elif logits_to_keep:
            hidden = hidden[-logits_to_keep:]
        return Logits(self._head(hidden)[None])
