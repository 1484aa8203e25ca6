"""The native replacement for a decoder: embeddings, rotary tables, and a stack of native layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from .recognition import Norm
from .rotary import RotaryTables
from .stack import PackedLayer, Stack


class NativeDecoder(nn.Module):
    """A decoder (embeddings, layers, final norm) whose layers are native code.

    Args:
        decoder: decoder to replace, whose submodules are used.
        layers: the decoder's layers, packed.
        norm: norm after the last layer.

    Attributes:
        stack: stack that runs the layers.
        tables: rotary tables of the layers.
    """

    embed_tokens: nn.Module
    norm: nn.Module
    rotary_emb: nn.Module

    def __init__(self, decoder: nn.Module, layers: Sequence[PackedLayer], norm: Norm) -> None:
        super().__init__()
        for name, child in decoder._modules.items():
            self.add_module(name, child)
        self.config = decoder.config
        self.stack = Stack(layers, norm)
        self.tables = RotaryTables(self.rotary_emb, norm.weight.dtype)

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings.

        Models that also read images or sound embed the tokens before they call the decoder.
        """
        return self.embed_tokens

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: object = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        *,
        llmfw_step: Any,
        **kwargs: object,
    ) -> BaseModelOutputWithPast:
        """Return the last hidden states, [1, T, width], of the T tokens of a step, packed into one row.

        Takes the arguments of transformers' `forward`.
        """
        hidden = self.hidden_states(
            input_ids, position_ids, past_key_values, inputs_embeds, use_cache, llmfw_step
        )
        return BaseModelOutputWithPast(last_hidden_state=hidden[None])

    def hidden_states(
        self,
        input_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        past_key_values: object,
        inputs_embeds: torch.Tensor | None,
        use_cache: bool | None,
        step: Any,
    ) -> torch.Tensor:
        """Return the last hidden states, [T, width], of the T tokens of a step, packed into one row.

        Takes no transformers cache and no mask: the step has the KV cache and the lengths.

        Args:
            input_ids: token ids, [1, T]; used only if there are no `inputs_embeds`.
            position_ids: positions of the tokens, [1, T].
            inputs_embeds: embeddings, [1, T, width], or None.
            step: step that computes the attention (see `Stack.run`).

        Raises:
            ValueError: there is a transformers cache, more than one row, or no positions.
        """
        if past_key_values is not None or use_cache:
            raise ValueError("a native decoder keeps no cache; keys and values are the attention backend's")
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if len(hidden) != 1 or position_ids is None:
            raise ValueError("a native decoder takes one packed row of tokens, with their positions")
        positions, cosines, sines = self.tables.of(position_ids[0])
        return self.stack.run(hidden[0], positions, (cosines, sines), step)
