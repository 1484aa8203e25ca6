"""Finds the tokens that end a repetition, because their text contains a sequence breaker."""

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
KEY_BYTES = 8


class Breakers:
    """The tokens that contain a breaker, as a mask on the device for each set of breakers.

    Keeps the masks of the last 64 sets. Finds the tokens of a new set by an index, without a search of the
    whole vocabulary. The index has the positions of all bytes, sorted by the 8 bytes that start at the
    position.

    Args:
        context: the model and the device.

    Attributes:
        default: whether each token contains one of the default breakers, on the device: [vocab].
    """

    def __init__(self, context: ProcessorContext) -> None:
        texts = [context.token_bytes(token) for token in range(context.vocab_size)]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self._text = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self._owners = np.repeat(np.arange(len(texts)), lengths)  # token of each byte
        self._ends = np.repeat(np.cumsum(lengths), lengths)  # end of each byte's token
        keys = _keys(self._text, self._ends)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self._vocab_size = context.vocab_size
        self._device = context.device
        self._masks: OrderedDict[tuple[str, ...], torch.Tensor] = OrderedDict()
        self.default = self._make([text for text in DEFAULT if len(self._tokens_with(text.encode()))])

    def mask(self, texts: Sequence[str]) -> torch.Tensor:
        """Return whether each token's text contains one of the breakers, on the device: [vocab].

        Raises:
            RequestError: one of the texts is in no token, so it would have no effect.
        """
        key = tuple(sorted(set(texts)))
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = self._make(key)
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
        """Return the tokens whose text contains these bytes."""
        first = int.from_bytes(text[:KEY_BYTES].ljust(KEY_BYTES, b"\0"), "big")
        last = int.from_bytes(text[:KEY_BYTES].ljust(KEY_BYTES, b"\xff"), "big")
        start = np.searchsorted(self._keys, np.uint64(first), "left")
        end = np.searchsorted(self._keys, np.uint64(last), "right")
        places = self._order[start:end]
        places = places[places + len(text) <= self._ends[places]]
        for i in range(KEY_BYTES, len(text)):
            places = places[self._text[places + i] == text[i]]
        return self._owners[places]


def _keys(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the 8 bytes from each position on, as a big-endian number. Bytes past a token's end are 0."""
    places = np.arange(len(text))
    keys = np.zeros(len(text), dtype=np.uint64)
    for i in range(KEY_BYTES):
        following = np.where(places + i < ends, np.roll(text, -i), 0)
        keys = (keys << np.uint64(8)) | following.astype(np.uint64)
    return keys
