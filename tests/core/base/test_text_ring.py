"""A ring of text keeps the end of what was written."""

from __future__ import annotations

import random

from llmfw.core.base.text_ring import TextRing


def new_ring(size: int) -> tuple[memoryview, TextRing]:
    buffer = memoryview(bytearray(8 + size))
    return buffer, TextRing(buffer)


def test_a_ring_keeps_the_last_whole_lines() -> None:
    draw, written = random.Random(1), ""
    _, ring = new_ring(100)
    for number in range(200):
        line = f"{number}{'x' * draw.randrange(30)}\n"
        written += line
        ring.write(line)
        kept = ring.text()
        assert written.endswith(kept)
        assert len(kept) >= 60 or kept == written
        assert kept == written or written[: -len(kept)].endswith("\n")


def test_another_ring_reads_the_same_buffer() -> None:
    buffer, ring = new_ring(50)
    ring.write("ä\nb\n")
    assert TextRing(buffer).text() == "ä\nb\n"


def test_a_text_longer_than_the_ring_is_cut() -> None:
    _, ring = new_ring(10)
    ring.write("a" * 100 + "\nend\n")
    assert ring.text() == "end\n"
