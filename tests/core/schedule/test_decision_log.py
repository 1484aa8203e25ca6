"""What was decided about a request is told in order, in few entries, and only of the last requests."""

from __future__ import annotations

import logging

import pytest

from llmfw.core.base.errors import NotFoundError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.schedule.decision_log import MAX_ENTRIES, DecisionLog
from llmfw.core.schedule.plan import PlannedSequence
from llmfw.core.schedule.sequence import SequenceState

from .plans import plan_of


class Clock:
    """Goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def sequence(id: str = "a", num_tokens: int = 9) -> SequenceState:
    request = Request(id=id, prompt=[1] * num_tokens, sampling=SamplingParams(max_tokens=4))
    return SequenceState(request, 0)


def step(log: DecisionLog, *parts: tuple[SequenceState, int, bool]) -> None:
    """Plan a step in which sequences compute so many tokens, of their prompts or not."""
    planned = [
        PlannedSequence(seq, 0, 0, count, samples=False, is_new=False, is_prefill=is_prefill)
        for seq, count, is_prefill in parts
    ]
    log.planned(plan_of(planned))


@pytest.fixture
def log() -> DecisionLog:
    return DecisionLog(3, Clock())


def kinds(log: DecisionLog, id: str = "a") -> list[str]:
    return [entry.kind for entry in log.find(id).entries]


def test_entries_follow_a_request_in_order(log: DecisionLog) -> None:
    seq = sequence()
    log.arrived(seq)
    seq.num_computed = 4
    log.admitted(seq)
    step(log, (seq, 5, True))
    step(log, (seq, 1, False))
    log.retracted(seq, "no room")
    log.ended(seq, "stop")
    entries = log.find("a").entries
    assert [entry.kind for entry in entries] == ["arrived", "admitted", "computed", "retracted", "ended"]
    assert [entry.num_tokens for entry in entries] == [0, 4, 5, 0, 0]
    assert [entry.first_step for entry in entries] == [1, 1, 1, 3, 3]
    assert [entry.reason for entry in entries[-2:]] == ["no room", "stop"]
    assert [entry.at_s for entry in entries] == sorted(entry.at_s for entry in entries)


def test_repeated_waits_are_one_entry(log: DecisionLog) -> None:
    seq = sequence()
    log.arrived(seq)
    for i in range(5):
        log.waits(seq, f"no place: {i} requests run", 7 - i)
        step(log)
    log.waits(seq, "the policy holds it", 2)
    first, second = log.find("a").entries[1:]
    assert (first.first_step, first.last_step, first.num_ahead) == (1, 5, 3)
    assert first.reason == "no place: 4 requests run"
    assert first.until_s > first.at_s
    assert (second.first_step, second.reason) == (6, "the policy holds it")


def test_the_chunks_of_a_prompt_are_one_entry(log: DecisionLog) -> None:
    seq = sequence()
    log.arrived(seq)
    for count in (4, 4, 1):
        step(log, (seq, count, True))
    [computed] = log.find("a").entries[1:]
    assert (computed.num_tokens, computed.first_step, computed.last_step) == (9, 1, 3)


def test_only_the_latest_requests_are_remembered(log: DecisionLog) -> None:
    for id in "abcd":
        log.arrived(sequence(id))
    log.waits(sequence("a"), "no place", 1)
    with pytest.raises(NotFoundError, match=r"'a'.*the last 3 requests.*--trace-requests"):
        log.find("a")
    assert kinds(log, "d") == ["arrived"]


def test_long_requests_keep_first_and_last_entries(log: DecisionLog) -> None:
    seq = sequence()
    log.arrived(seq)
    for i in range(MAX_ENTRIES):
        log.waits(seq, "no place", 0)
        log.retracted(seq, f"{i}")
    found = log.find("a")
    assert len(found.entries) == MAX_ENTRIES
    assert found.num_left_out == MAX_ENTRIES + 1
    assert found.entries[0].kind == "arrived"
    assert found.entries[-1].reason == str(MAX_ENTRIES - 1)


def test_entries_are_logged_with_the_request_s_id(log: DecisionLog, caplog: pytest.LogCaptureFixture) -> None:
    seq = sequence()
    with caplog.at_level(logging.DEBUG, "llmfw.core.schedule.trace"):
        log.arrived(seq)
        for i in range(3):
            log.waits(seq, f"no place: {i} run", 1)
            step(log)
        step(log, (seq, 9, True))
    assert caplog.messages == [
        "request a step 1: arrived",
        "request a step 1: waits: no place: 0 run",
        "request a step 4: computed 9 tokens",
    ]


def test_nothing_is_logged_above_debug_level(log: DecisionLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "llmfw.core.schedule.trace"):
        log.arrived(sequence())
    assert caplog.messages == []
