"""Finds the tokens at which repetitions begin anew: those whose text has one of some texts in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core import ProcessorContext, RequestError

FIELD = "dry_sequence_breakers"
DEFAULT = ("\n", ":", '"', "*")
MAX_SETS = 64


class Breakers:
    """The tokens of sets of breakers, as masks on the device.

    Keeps the masks of the last 64 sets.

    Args:
        context: the model and the device.

    Attributes:
        default: whether each token has one of the default texts in it, on the device: [vocab].
    """

    def __init__(self, context: ProcessorContext) -> None:
        texts = [context.token_bytes(token) for token in range(context.vocab_size)]
        self._text = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self._owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])  # token of each byte
        self._vocab_size = context.vocab_size
        self._device = context.device
        self._masks: OrderedDict[tuple[str, ...], torch.Tensor] = OrderedDict()
        self.default = self._make([text for text in DEFAULT if len(self._tokens_with(text.encode()))])

    def mask(self, texts: Sequence[str]) -> torch.Tensor:
        """Return whether each token's text has one of some texts in it, on the device: [vocab].

        Raises:
            RequestError: no token has one of the texts, so that it would have no effect.
        """
        key = tuple(texts)
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = self._make(texts)
            if len(self._masks) > MAX_SETS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(key)
        return found

    def _make(self, texts: Sequence[str]) -> torch.Tensor:
        mask = np.zeros(self._vocab_size, dtype=np.bool_)
        for text in texts:
            tokens = self._tokens_with(text.encode())
            if not len(tokens):
                raise RequestError(
                    f"{FIELD} has {text!r}, which no token of the model has in it; give a shorter text",
                    param=FIELD,
                )
            mask[tokens] = True
        return torch.from_numpy(mask).to(self._device)

    def _tokens_with(self, text: bytes) -> npt.NDArray[np.int64]:
        """Return the tokens that have these bytes in their text."""
        num = len(self._text) - len(text) + 1
        if num <= 0:
            return np.empty(0, dtype=np.int64)
        is_there = self._owners[:num] == self._owners[len(text) - 1 :]  # no text of two tokens
        for i, byte in enumerate(text):
            is_there &= self._text[i : i + num] == byte
        return self._owners[:num][is_there]
