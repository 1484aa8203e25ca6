"""What a drafter answers is tokens, or it is not asked again."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.interfaces.drafter import DraftedRequest, Drafter, SequenceDrafter
from llmfw.core.schedule.isolated_drafter import IsolatedDrafter

REQUEST = Request(
    id="a", prompt=[1], sampling=SamplingParams(), tenant="bob", cache_salt="s", fields={"speed": 3}
)


class Answers(Drafter, SequenceDrafter):
    """Drafts what it is told to; it is its own sequence."""

    def __init__(self, answer: Any, begun: Any = None) -> None:
        super().__init__(self.Options())
        self.answer = answer
        self.begun = begun

    def begin(self) -> SequenceDrafter:
        return self if self.begun is None else self.begun  # type: ignore[no-any-return]

    def extend(self, token_ids: Sequence[int]) -> None:
        assert token_ids

    def draft(self, limit: int) -> Sequence[int]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("answer", [[], (), [3, 0], (9,), np.array([4, 5]), range(2)])
def test_any_sequence_of_tokens_is_a_draft(answer: Sequence[int]) -> None:
    guard = IsolatedDrafter(Answers(answer), vocab_size=10)
    sequence = guard.begin(REQUEST)
    assert sequence is not None
    assert guard.draft(sequence, [1], 2) == list(answer)
    assert guard.failure is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "draft() returned None, not token ids"),
        (["a"], "draft() returned ['a'], not token ids"),
        ([1.0], "draft() returned [1.0], not token ids"),
        ([1, 2, 3], "draft() returned 3 tokens where at most 2 were asked for"),
        ([10], "draft() returned the token 10, which is not from 0 to 9"),
        ([-1], "draft() returned the token -1, which is not from 0 to 9"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(1), "SystemExit: 1"),
    ],
)
def test_a_failing_drafter_is_logged_once_and_disabled(
    answer: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = IsolatedDrafter(Answers(answer), vocab_size=10, who="drafter 'mine' of plugin 'ours'")
    sequence = guard.begin(REQUEST)
    assert sequence is not None
    with caplog.at_level(logging.ERROR):
        assert [guard.draft(sequence, [1], 2) for _ in range(3)] == [[], [], []]
    assert guard.failure == said
    [record] = caplog.records
    wanted = f"drafter 'mine' of plugin 'ours' failed and is no longer used: {said}. Generation goes on"
    assert record.getMessage().startswith(wanted)
    assert guard.begin(REQUEST) is None


def test_an_endless_draft_is_a_failure() -> None:
    guard = IsolatedDrafter(Answers(itertools.repeat(5)), vocab_size=10)
    sequence = guard.begin(REQUEST)
    assert sequence is not None
    assert guard.draft(sequence, [1], 2) == []
    assert guard.failure == "draft() returned more than 2 tokens where at most 2 were asked for"


def test_begin_must_return_a_sequence_drafter() -> None:
    guard = IsolatedDrafter(Answers([], begun=7), vocab_size=10)
    assert guard.begin(REQUEST) is None
    assert guard.failure == "begin() returned a int, not a SequenceDrafter"


def test_a_drafter_may_know_the_request() -> None:
    seen: list[DraftedRequest] = []

    class Knows(Answers):
        def begin_for(self, request: DraftedRequest) -> SequenceDrafter:
            seen.append(request)
            return self

    assert IsolatedDrafter(Knows([1]), vocab_size=10).begin(REQUEST) is not None
    assert seen == [DraftedRequest(tenant="bob", tenant_is_key=False, cache_salt="s", fields={"speed": 3})]
