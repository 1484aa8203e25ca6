"""Pieces of a prompt never cut an image whose tokens attend to each other in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.core.base.media import MediaSpan
from llmfw.core.schedule.sequence_media import SequenceMedia

ROW = 5
PROMPT = np.array([1, 1, 1, *[ROW] * 6, 1, *[ROW] * 4, 1, 1], dtype=np.int32)


def media(*, is_block: bool) -> SequenceMedia:
    spans = [
        MediaSpan(offset=offset, length=length, key=bytes(32), token_id=ROW, tensors={}, is_block=is_block)
        for offset, length in ((3, 6), (10, 4))
    ]
    return SequenceMedia(PROMPT, spans)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        (0, 2, 2),
        (0, 3, 3),
        (0, 4, 3),  # ends before the image
        (0, 9, 9),
        (3, 1, 6),  # the image is computed whole, though a piece of 1 was planned
        (3, 6, 6),
        (5, 1, 4),  # the rest of an image whose first tokens were cached
        (3, 8, 7),
        (10, 2, 4),
        (14, 1, 1),
    ],
)
def test_pieces_do_not_cut_images(start: int, count: int, expected: int) -> None:
    assert media(is_block=True).uncut(start, count) == expected
    assert media(is_block=False).uncut(start, count) == count


def test_tokens_of_images_see_their_ends() -> None:
    expected = [*[1, 2, 3], *[9] * 6, 10, *[14] * 4, 15, 16]
    assert media(is_block=True).ends(0, 16).tolist() == expected
    assert media(is_block=True).ends(5, 12).tolist() == expected[5:12]
    assert media(is_block=False).ends(0, 16).tolist() == list(range(1, 17))
