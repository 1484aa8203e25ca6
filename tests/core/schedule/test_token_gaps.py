"""The histograms of times between tokens, compared with a plain loop over every token."""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np

from llmfw.core.base.histogram import TOKEN_BOUNDS, Histogram
from llmfw.core.schedule.sequence_table import SequenceTable
from llmfw.core.schedule.token_gaps import MAX_PENDING, TokenGaps


def test_gaps_are_those_of_each_sequence() -> None:
    rng, table = random.Random(1), SequenceTable(16)
    table.is_deferrable[8:] = 1
    gaps, last = TokenGaps(table), dict[int, float]()
    plain = [Histogram.empty(TOKEN_BOUNDS), Histogram.empty(TOKEN_BOUNDS)]
    now = 5.0
    for _ in range(3 * MAX_PENDING + 5):
        now += rng.choice([0.0004, 0.01, 0.3, 100.0])
        running = rng.sample(range(16), rng.randrange(1, 16))
        gaps.note(np.array(running), now)
        for index in running:
            if index in last:
                plain[index >= 8].add(now - last[index])
            last[index] = now
    for found, expected in zip((gaps.live, gaps.deferrable), plain, strict=True):
        assert found.counts == expected.counts
        assert abs(found.seconds - expected.seconds) < 1e-6


def test_a_reused_index_starts_without_a_gap() -> None:
    table = SequenceTable(1)
    gaps = TokenGaps(table)
    gaps.note(np.array([0]), 1.0)
    table.token_at[0] = 0  # as `SequenceTable.add` does
    gaps.note(np.array([0]), 9.0)
    assert sum(gaps.live.counts) == 0


def test_a_duration_counts_up_to_its_bound() -> None:
    found = Histogram.empty((1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 2.5):
        found.add(seconds)
    assert (found.counts, found.seconds) == ([2, 1, 1], 5.5)
    assert bisect_left((1.0, 2.0), 1.0) == np.array([1.0, 2.0]).searchsorted(1.0)
