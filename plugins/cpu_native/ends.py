"""A model's embeddings and head in native code: from token ids to hidden states, and to logits.

If the layers and their attention are native, too, a whole step is one native call. For a small model, leaving
and entering native code takes longer than the embeddings and the final norm together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .decoder import NativeDecoder
from .recognition import is_plain_embedding
from .structs import EndsStruct
from .weights import NativeEmbedding, NativeLinear

DONE, NO_SUCH_ID = 0, 1
"""Statuses of `llmfw_run_model`. Any other status: a requested row does not exist."""


class Ends:
    """The embeddings and the head of a model with native layers.

    Args:
        decoder: decoder with the layers.
        embedding: embeddings of the model, in the native layout or plain.
        head: head of the model, in the native layout.
    """

    def __init__(
        self, decoder: NativeDecoder, embedding: NativeEmbedding | nn.Embedding, head: NativeLinear
    ) -> None:
        self._stack, self._tables = decoder.stack, decoder.tables
        self._held = embedding, head  # keeps them alive: the struct has their addresses
        self._vocab_size, self._width = head.out_features, head.packed.widths[0]
        self._struct = EndsStruct(head=head.packed.matrix(), num_ids=embedding.num_embeddings)
        if isinstance(embedding, NativeEmbedding):
            self._struct.embeddings = embedding.packed.matrix()
        else:
            self._struct.plain_embeddings = embedding.weight.data_ptr()

    @classmethod
    def around(cls, decoder: NativeDecoder, head: nn.Module) -> Ends | None:
        """Return the embeddings and head of a model, or None if native code does not support one of them."""
        embedding, dtype = decoder.embed_tokens, decoder.stack.dtype
        if type(head) is not NativeLinear or head.packed.dtype != dtype or len(head.packed.sizes) > 1:
            return None
        if type(embedding) is NativeEmbedding:
            return cls(decoder, embedding, head) if embedding.packed.dtype == dtype else None
        if not is_plain_embedding(embedding) or not isinstance(embedding, nn.Embedding):
            return None
        weight = embedding.weight
        fits = weight.dtype == dtype and weight.is_contiguous() and weight.device.type == "cpu"
        return cls(decoder, embedding, head) if fits else None

    def logits(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: int | torch.Tensor,
        step: Any,
    ) -> torch.Tensor | None:
        """Return logits of some tokens of a step, [W, vocab], float32.

        Returns None if one native call cannot compute them.

        Takes the same arguments as `HeadedForward`.

        Raises:
            IndexError: a token id is out of range.
        """
        attentions = self._stack.native_attention(step)
        if attentions is None or input_ids.shape != position_ids.shape or input_ids.shape[0] != 1:
            return None
        ids, wanted = input_ids[0].contiguous(), None
        if isinstance(logits_to_keep, torch.Tensor):
            wanted = logits_to_keep.contiguous()
        elif logits_to_keep:
            return None
        if ids.dtype != torch.int64 or not ids.numel() or not (wanted is None or _are_places(wanted)):
            return None
        positions, cosines, sines = self._tables.of(position_ids[0])
        logits = torch.empty(
            (ids if wanted is None else wanted).numel(), self._width, dtype=torch.float32, device="cpu"
        )
        self._struct.ids, self._struct.logits = ids.data_ptr(), logits.data_ptr()
        status = self._stack.run_whole(self._struct, positions, (cosines, sines), attentions, wanted)
        if status == NO_SUCH_ID:
            raise IndexError(f"token ids have to be below {self._struct.num_ids}")
        if status != DONE:
            return None
        return logits if self._width == self._vocab_size else logits[:, : self._vocab_size]


def _are_places(numbers: torch.Tensor) -> bool:
    """Return whether the tensor can be row indices: int64 and one-dimensional (not, for example, a mask)."""
    return numbers.dtype == torch.int64 and numbers.dim() == 1
