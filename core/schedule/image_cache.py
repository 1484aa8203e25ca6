"""Decides which images a step encodes, keeps and drops. Holds no tensors.

    needed   images in the pieces of this step
    held     images that a sequence has computed in part: its next piece needs them again
    kept     encoded images, in the order of their last use; if memory is short, images that are neither
             needed nor held are dropped

An image is encoded whole, in the step that computes its first token. While other sequences decode, a step
encodes only one image, to stay short. Otherwise, a step encodes at most `max_rows` rows of images.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.step import ImageInput, Ints, StepImages

from .sequence import SequenceState


class ImageCache:
    """Tracks the encoded images of the executor, by key.

    Args:
        max_bytes: memory for encoded images. One image may exceed it.
        row_bytes: memory of a row of an encoded image.
        max_rows: number of rows that a step may encode. One image may exceed it.

    Attributes:
        num_encoded: number of images that were encoded since start.
        num_found: number of images that were already encoded when a sequence needed them.
    """

    def __init__(self, max_bytes: int, row_bytes: int, max_rows: int) -> None:
        self.num_encoded = self.num_found = 0
        self._max_bytes = max_bytes
        self._row_bytes = row_bytes
        self._max_rows = max_rows
        self._kept: dict[bytes, int] = {}  # key → bytes, least recently used first
        self._held: dict[SequenceState, set[bytes]] = {}
        self._planned: dict[bytes, int] = {}  # needed in the step that is being planned
        self._num_new = self._num_new_rows = 0
        self._is_busy = False

    @property
    def num_bytes(self) -> int:
        """Memory of the encoded images, in bytes."""
        return sum(self._kept.values())

    def begin(self) -> None:
        """Start planning a step."""
        self._planned = {}
        self._num_new = self._num_new_rows = 0
        self._is_busy = False

    def note_decoding(self, count: int) -> None:
        """Note that this many sequences decode in the step."""
        self._is_busy = self._is_busy or count > 0

    def fit(self, seq: SequenceState, count: int) -> int:
        """Return how many of a sequence's next `count` tokens may be computed in the step.

        The tokens end before the first image that the step can no longer encode. They may be more than
        `count`, so that no image is cut whose tokens attend to each other in both directions.
        """
        if seq.media is None or count <= 0:
            return count
        start = seq.num_computed
        count = seq.media.uncut(start, count)
        for number in seq.media.touched(start, start + count):
            span = seq.media.spans[number]
            if not self._plan(span.key, seq.media.num_rows[number]):
                return max(0, span.offset - start)
        return count

    def take(self, sequences: Sequence[SequenceState], starts: Ints, counts: Ints) -> StepImages:
        """Return the images that the executor drops, encodes and uses in a step.

        Args:
            sequences: sequences of the step: B.
            starts, counts: columns as in `StepInput`: [B].
        """
        if not any(seq.media for seq in sequences):
            return StepImages()
        parts, encoded, needed = [], list[ImageInput](), set[bytes]()
        first = 0
        for seq, start, count in zip(sequences, starts.tolist(), counts.tolist(), strict=True):
            end = start + count
            for number in () if seq.media is None else seq.media.touched(start, end):
                assert seq.media is not None
                span, num_rows = seq.media.spans[number], seq.media.num_rows[number]
                parts.append(seq.media.part(number, start, end, first))
                needed.add(span.key)
                if span.key not in self._kept:
                    self.num_encoded += 1
                    encoded.append(ImageInput(span.key, num_rows, span.tensors))
                elif span.offset >= start:
                    self.num_found += 1
                self._kept[span.key] = self._kept.pop(span.key, num_rows * self._row_bytes)
                held = self._held.setdefault(seq, set())
                (held.add if end < span.end else held.discard)(span.key)
                if not held:
                    del self._held[seq]
            first += count
        return StepImages(tuple(self._drop(needed)), tuple(encoded), tuple(parts))

    def release(self, seq: SequenceState) -> None:
        """Note that a sequence has lost its pages, or has ended."""
        self._held.pop(seq, None)

    def forget(self, images: StepImages) -> None:
        """Remove the images that a failed step should have encoded."""
        for image in images.encoded:
            self._kept.pop(image.key, None)

    def _plan(self, key: bytes, num_rows: int) -> bool:
        """Plan an image for the step; return whether the step can hold the image."""
        if key in self._planned:
            return True
        size = num_rows * self._row_bytes
        if key not in self._kept:
            if self._num_new and (self._is_busy or self._num_new_rows + num_rows > self._max_rows):
                return False
            taken = self._fixed(set(self._planned))
            if taken and taken + size > self._max_bytes:
                return False
            self._num_new += 1
            self._num_new_rows += num_rows
        self._planned[key] = size
        return True

    def _drop(self, needed: set[bytes]) -> list[bytes]:
        """Drop images until the remaining images fit into memory; return the keys of the dropped images."""
        dropped = []
        excess = self.num_bytes - self._max_bytes
        if excess <= 0:
            return []
        fixed = needed.union(*self._held.values())
        for key in [key for key in self._kept if key not in fixed]:
            if excess <= 0:
                break
            excess -= self._kept.pop(key)
            dropped.append(key)
        return dropped

    def _fixed(self, needed: set[bytes]) -> int:
        """Return the memory of the images that must not be dropped in this step, in bytes."""
        keys = needed.union(*self._held.values())
        return sum(self._kept.get(key) or self._planned.get(key, 0) for key in keys)
