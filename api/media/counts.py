"""Counts of images, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from llmfw.core.base.histogram import CALL_BOUNDS, Histogram


class ImageCounts(msgspec.Struct):
    """Counts and durations of the work on images since start.

    Attributes:
        accepted: number of images that were read.
        refused: reason → number of images that were refused.
        decoding: seconds that decoding took, without waiting.
        fetching: seconds that fetching images from URLs took, including failed attempts.
    """

    accepted: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    decoding: Histogram = msgspec.field(default_factory=lambda: Histogram.empty(CALL_BOUNDS))
    fetching: Histogram = msgspec.field(default_factory=lambda: Histogram.empty(CALL_BOUNDS))


def together(counts: Sequence[ImageCounts]) -> ImageCounts | None:
    """Return the sums of several counts; None if there are none."""
    if not counts:
        return None
    total = ImageCounts()
    for each in counts:
        total.accepted += each.accepted
        total.refused.update(each.refused)
        total.decoding.add_all(each.decoding)
        total.fetching.add_all(each.fetching)
    return total
