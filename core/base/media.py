"""Images in a prompt, as plain data that crosses between processes.

    prompt    [ text | span of an image ........ | text ]
    token_id           [ <img> <img> <img> ]                 one for each row that the model's encoder computes

In the prefix cache, an image is a run of numbers below 0 that depend on its pixels and on how they are
processed: equal images are a common prefix, as equal text is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]

LEAST_SHARED = 9
"""Least number of an image's positions that identify it in the prefix cache. Each position carries 31 bits, and a
digest has 256."""


class MediaArray(msgspec.Struct, frozen=True, array_like=True):
    """A tensor as plain data.

    Attributes:
        dtype: dtype by numpy's short name, such as "<f4".
        shape: shape.
        data: elements in row-major order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> MediaArray:
        """Return an array of numpy as plain data."""
        whole = np.ascontiguousarray(array)
        return cls(whole.dtype.str, tuple(whole.shape), whole.tobytes())

    def numpy(self) -> npt.NDArray[np.generic]:
        """Return the array; it cannot be written to.

        Raises:
            ValueError: the data does not have the dtype or the shape.
        """
        if self.dtype not in DTYPES:
            raise ValueError(
                f"an array has dtype {self.dtype!r:.40}; it must be one of {', '.join(sorted(DTYPES))}"
            )
        return np.frombuffer(self.data, np.dtype(self.dtype)).reshape(self.shape)


DTYPES = frozenset(np.dtype(name).str for name in ("float32", "float64", "int64", "int32", "uint8", "bool"))


class MediaSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, weakref=True):
    """An image in a prompt.

    Attributes:
        offset: index of its first token in the prompt.
        length: number of tokens from its first to its last, including tokens in between that the model reads
            as text.
        key: 32 bytes that identify the pixels and how they were processed.
        token_id: token in the place of each row of the encoder's output.
        tensors: what the model's encoder reads, by the name of its argument.
        positions: rotary positions of the span's tokens, int64: [3, length]; None: positions are indices.
        shift: difference between rotary position and index, for the text after the span.
        is_block: whether the tokens that take rows attend to each other in both directions.
    """

    offset: int
    length: int
    key: bytes
    token_id: int
    tensors: dict[str, MediaArray]
    positions: MediaArray | None = None
    shift: int = 0
    is_block: bool = False

    @property
    def end(self) -> int:
        """Index after the span's last token."""
        return self.offset + self.length


class MediaPrompt(msgspec.Struct, frozen=True):
    """A prompt with images, as tokens.

    Attributes:
        token_ids: token ids of the prompt.
        spans: the images in it, in order. Their rotary positions are not set: the engine computes them.
    """

    token_ids: list[int]
    spans: tuple[MediaSpan, ...]


def cache_ids(token_ids: TokenIds, spans: Sequence[MediaSpan]) -> TokenIds:
    """Return the numbers that identify a prompt in the prefix cache: token ids, and numbers for images."""
    found = token_ids.copy()
    for span in spans:
        found[span.offset : span.end] = _numbers(span.key, span.length)[: max(0, len(found) - span.offset)]
    return found


def shared_length(spans: Sequence[MediaSpan], length: int, page_size: int) -> int:
    """Return the length of the part of a common prefix that is certainly the same, in whole pages.

    If the prefix ends among the first LEAST_SHARED positions of an image, these positions could belong to
    another image, by chance or by intent. The returned length then ends before the image.
    """
    for span in reversed(spans):
        length -= length % page_size
        if span.offset < length < span.offset + LEAST_SHARED or span.length < LEAST_SHARED:
            length = min(length, span.offset)
    return length - length % page_size


def blocks_of(token_ids: TokenIds, spans: Sequence[MediaSpan]) -> npt.NDArray[np.int64]:
    """Return the first index, and the index after the last, of each run of tokens that take rows: [n, 2].

    Args:
        token_ids: token ids of the prompt: [N].
        spans: images whose tokens to find.
    """
    takes = np.zeros(len(token_ids) + 2, dtype=np.int8)  # with a token of text at each end
    for span in spans:
        takes[1 + span.offset : 1 + span.end] = token_ids[span.offset : span.end] == span.token_id
    found: npt.NDArray[np.int64] = np.flatnonzero(np.diff(takes)).reshape(-1, 2)
    return found


def ends_of(blocks: npt.NDArray[np.int64], start: int, end: int) -> npt.NDArray[np.int64]:
    """Return the index after the last token that each token at [start, end) attends to: [end - start].

    Args:
        blocks: runs of tokens that attend to each other in both directions, as `blocks_of` returns them.
    """
    found: npt.NDArray[np.int64] = np.arange(start, end) + 1
    for first, last in blocks.tolist():
        found[max(0, first - start) : max(0, last - start)] = last
    return found


def _numbers(key: bytes, count: int) -> TokenIds:
    """Return numbers below 0 that are derived from all bits of a key: [count]."""
    words = np.frombuffer(hashlib.shake_256(key).digest(4 * count), np.int32)
    found: TokenIds = words | np.int32(-(2**31))
    return found
