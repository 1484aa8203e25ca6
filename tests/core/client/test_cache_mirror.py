"""What a router knows of an engine's prefix cache is what the cache holds, also when reports are lost."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.engine_info import EngineReport
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.client.cache_mirror import CacheMirror, num_held
from llmfw.core.engine.process.reporter import EngineReporter, PrefillMeter
from llmfw.core.ipc.wire import decode_from_engine, encode
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_hash import block_hashes
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshot_slots import SnapshotSlots

from ...length import of_length

SALTS = ("", "ann", "bob")


class Rig:
    """A cache under random load, and a mirror of it at the other end of a line that may lose reports."""

    def __init__(self, seed: int, *, loses: bool = False, states: bool = False) -> None:
        self.rng = rng = random.Random(seed)
        page_size = rng.choice([1, 1, 3, 16, 40])
        self.pool = KVPool(rng.choice([40, 400, 4000]) // page_size + 4, page_size)
        self.cache = SnapshotCache(self.pool, SnapshotSlots(4, 4)) if states else RadixCache(self.pool)
        self.reporter = EngineReporter(self.cache.start_journal())
        self.num_asked = 0
        self.mirror = CacheMirror(self._ask)
        self._loses = loses
        self._prompts: list[list[int]] = [
            [rng.randrange(3) for _ in range(rng.randrange(200))] for _ in range(6)
        ]
        self._locked: list[object] = []

    def prompt(self) -> list[int]:
        """Return a prompt that shares a beginning with others."""
        start = self.rng.choice(self._prompts)
        start = start[: self.rng.randrange(len(start) + 1)]
        return start + [self.rng.randrange(3) for _ in range(self.rng.randrange(60))]

    def change(self) -> None:
        salt, tokens = self.rng.choice(SALTS), np.array(self.prompt(), np.int32)
        action = self.rng.randrange(5)
        if action == 0:
            self.cache.evict(self.rng.randrange(1, self.pool.num_pages))
        elif action == 1:
            self.cache.match(tokens, salt)  # may split a node
        elif action == 2 and self._locked:
            self.cache.unlock(self._locked.pop())  # type: ignore[arg-type]
        else:
            self._insert(tokens, salt)

    def report(self) -> None:
        report = self.reporter.take()
        if report is not None and not (self._loses and self.rng.random() < 0.2):
            self._send(report)

    def check(self) -> None:
        block = self.mirror.block
        if not block:
            return
        for _ in range(5):
            salt, tokens = self.rng.choice(SALTS), np.array(self.prompt(), np.int32)
            cached = RadixCache.match_length(self.cache, tokens, salt)
            assert self.mirror.num_matched(block_hashes(tokens, salt, block)) == cached // block

    def _insert(self, tokens: np.ndarray, salt: str) -> None:
        tokens = tokens[: len(tokens) - len(tokens) % self.pool.page_size]
        missing = len(tokens) // self.pool.page_size - self.pool.num_free
        if missing > 0:
            self.cache.evict(missing)
        size = min(len(tokens) // self.pool.page_size, self.pool.num_free)
        own = self.pool.allocate(size)
        node, theirs = self.cache.insert(tokens[: size * self.pool.page_size], own, salt)
        self.pool.free(own[own != theirs])
        if node.parent is not None and self.rng.random() < 0.2:
            self.cache.lock(node)
            self._locked.append(node)

    def _ask(self) -> None:
        self.num_asked += 1
        self._send(self.reporter.take_whole())

    def _send(self, report: EngineReport) -> None:
        received = decode_from_engine(encode(report))
        assert isinstance(received, EngineReport)
        self.mirror.take(received)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("seed", range(of_length(10, 60)))
def test_the_mirror_equals_the_cache(seed: int, states: bool) -> None:
    rig = Rig(seed, states=states)
    for _ in range(60):
        for _ in range(rig.rng.randrange(1, 4)):
            rig.change()
        rig.report()
        rig.check()
    rig.cache.evict(rig.pool.num_pages)
    rig.report()
    rig.check()
    assert rig.num_asked == rig.mirror.num_gaps == 0
    assert len(rig.mirror) <= rig.cache.num_pages * rig.pool.page_size // (rig.mirror.block or 1) + 1


@pytest.mark.parametrize("seed", range(of_length(10, 60)))
def test_lost_reports_are_noticed_and_healed(seed: int) -> None:
    """The next report that arrives shows the gap; then all is asked for."""
    rig = Rig(seed, loses=True)
    for _ in range(100):
        rig.change()
        rig.report()
    rig._loses = False
    while rig.mirror._number != rig.reporter._number:
        rig.change()
        rig.report()
    rig.check()
    assert rig.num_asked == rig.mirror.num_gaps > 0


def test_until_a_gap_is_healed_nothing_matches() -> None:
    asked: list[int] = []
    mirror = CacheMirror(lambda: asked.append(1))
    hashes = [7, 8, 9]
    data = b"".join(each.to_bytes(8, "little") for each in hashes)
    mirror.take(EngineReport(1, block=16, added=data, tokens_per_s=5.0))
    assert mirror.num_matched(hashes) == 3
    for number in (3, 4, 5):
        mirror.take(EngineReport(number, block=16, added=data))
        assert mirror.num_matched(hashes) == 0
    assert asked == [1]
    mirror.take(EngineReport(6, is_whole=True, block=16, added=data[:16], tokens_per_s=7.0))
    assert mirror.num_matched(hashes) == 2
    assert mirror.tokens_per_s == 7.0
    mirror.take(EngineReport(7, block=16, added=data[16:], removed=data[:8]))
    assert len(mirror) == 2


@given(num=st.integers(0, 300), count=st.integers(0, 300))
def test_the_search_finds_the_first_missing_hash(num: int, count: int) -> None:
    assert num_held(list(range(num)), set(range(min(count, num)))) == min(count, num)


def test_the_speed_is_that_of_recent_prefill_steps() -> None:
    meter = PrefillMeter()
    meter.note(StepSizes(8, 8), 1.0)  # computes no prompt
    assert meter.tokens_per_s == 0.0
    for _ in range(10):
        meter.note(StepSizes(108, 9, 1), 0.1)
    assert meter.tokens_per_s == pytest.approx(1000)
    for _ in range(200):
        meter.note(StepSizes(50, 1, 1), 0.1)
    assert meter.tokens_per_s == pytest.approx(500, rel=0.01)


def test_a_new_speed_alone_is_news() -> None:
    reporter = EngineReporter(None)
    assert reporter.take() is None
    reporter.meter.note(StepSizes(100, 1, 1), 0.1)
    report = reporter.take()
    assert report is not None
    assert (report.tokens_per_s, report.block) == (pytest.approx(1000), 0)
    reporter.meter.note(StepSizes(101, 1, 1), 0.1)
    assert reporter.take() is None
