"""The images of one sequence's prompt: the rows that its tokens take, and the rotary positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llmfw.core.base.media import MediaSpan, TokenIds, blocks_of, cache_ids, ends_of
from llmfw.core.base.step import ImagePart, Ints


class SequenceMedia:
    """The images of a prompt. Objects of this class never change.

    Args:
        prompt: token ids of the prompt: [N].
        spans: images in the prompt, in order; at least one.

    Attributes:
        spans: images in the prompt, in order.
        cache_ids: numbers that stand for the prompt's tokens in the prefix cache: [N].
        shift: difference of the rotary position from the index, for tokens after the prompt.
        num_rows: number of rows that the encoder computes for each image.
        blocks: first index, and index after the last, of each run of tokens that attend to each other in both
            directions, in order: [n, 2].
    """

    def __init__(self, prompt: TokenIds, spans: Sequence[MediaSpan]) -> None:
        self.spans = tuple(spans)
        self.cache_ids = cache_ids(prompt, spans)
        self.shift = spans[-1].shift
        self._takes = [prompt[span.offset : span.end] == span.token_id for span in spans]
        self.num_rows = [int(np.count_nonzero(takes)) for takes in self._takes]
        self._rotary = _rotary(len(prompt), spans) if any(span.positions for span in spans) else None
        self.blocks = blocks_of(prompt, [span for span in spans if span.is_block])

    @property
    def has_rotary(self) -> bool:
        """Whether the positions of images are counted on three axes."""
        return self._rotary is not None

    def touched(self, start: int, end: int) -> list[int]:
        """Return the numbers of the images that have tokens at [start, end)."""
        return [i for i, span in enumerate(self.spans) if span.offset < end and start < span.end]

    def part(self, number: int, start: int, end: int, first: int) -> ImagePart:
        """Return the tokens at [start, end) that take rows of an image, and those rows.

        Args:
            number: number of the image.
            first: index of the token at `start` among the tokens of the step.
        """
        span, takes = self.spans[number], self._takes[number]
        low, high = max(start, span.offset) - span.offset, min(end, span.end) - span.offset
        places = np.flatnonzero(takes[low:high])
        rows = np.arange(len(places)) + np.count_nonzero(takes[:low])
        return ImagePart(span.key, places + (first + span.offset + low - start), rows)

    def uncut(self, start: int, count: int) -> int:
        """Return how many tokens from `start` on to compute, about `count`, so that no block is cut.

        A block that starts after `start` is left for the next piece. A block that starts at or before `start`
        is computed to its end, even if it has more than `count` tokens.
        """
        end = start + count
        for first, last in self.blocks.tolist():
            if first < end < last:
                return int(first if first > start else last) - start
        return count

    def ends(self, start: int, end: int) -> Ints:
        """Return the index after the last token that each token at [start, end) attends to: [end - start]."""
        return ends_of(self.blocks, start, end)

    def rotary(self, start: int, end: int) -> Ints:
        """Return the rotary positions of the tokens at [start, end): [3, end - start]."""
        found: Ints = np.tile(np.arange(start, end) + self.shift, (3, 1))
        if self._rotary is None:
            return found
        known = self._rotary[:, start:end]
        found[:, : known.shape[1]] = known
        return found


def _rotary(length: int, spans: Sequence[MediaSpan]) -> npt.NDArray[np.int64]:
    """Return the rotary positions of a prompt: [3, length]."""
    found = np.tile(np.arange(length), (3, 1))
    for span in spans:
        found[:, span.end :] = np.arange(span.end, length) + span.shift
        if span.positions is not None:
            found[:, span.offset : span.end] = span.positions.numpy()
    return found
