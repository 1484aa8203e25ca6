"""Joined events say what the single ones said, and the first and the last are not held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.request import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprob, Wait
from llmfw.core.engine.generation.stream_interval import StreamInterval


def events(request_id: str, num: int) -> list[TokenEvent]:
    """Return the events of a request that ends with its last token."""
    made = [TokenEvent(request_id, [i], logprobs=[TokenLogprob(-float(i))]) for i in range(num)]
    made[0].cached_tokens = 7
    made[-1].finish_reason = FinishReason.STOP
    return made


@given(interval=st.integers(1, 9), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_joining_events_loses_nothing(interval: int, lengths: list[int]) -> None:
    requests = {str(i): events(str(i), num) for i, num in enumerate(lengths)}
    streams = StreamInterval(interval)
    sent: dict[str, list[TokenEvent]] = {request_id: [] for request_id in requests}
    for step in range(max(lengths)):
        for event in streams.pass_on([made[step] for made in requests.values() if step < len(made)]):
            sent[event.id].append(event)
    for request_id, num in zip(requests, lengths, strict=True):
        got = sent[request_id]
        assert [token for event in got for token in event.token_ids] == list(range(num))
        assert [-p.logprob for event in got for p in event.logprobs or []] == list(range(num))
        assert len(got[0].token_ids) == 1
        assert all(len(event.token_ids) == interval for event in got[1:-1])
        assert got[-1].finish_reason is FinishReason.STOP
        assert got[0].cached_tokens == 7


def test_aborted_requests_are_forgotten() -> None:
    streams = StreamInterval(4)
    first, second, *_ = events("a", 9)
    assert streams.pass_on([first]) == [first]
    assert streams.pass_on([second]) == []
    streams.forget(["a"])
    again = TokenEvent("a", [5])
    assert streams.pass_on([again]) == [again]


def asking(request_id: str, interval: int | None) -> Request:
    return Request(id=request_id, prompt=[1], sampling=SamplingParams(), stream_interval=interval)


def test_a_request_may_set_its_own_interval() -> None:
    streams = StreamInterval(1)
    for request_id, interval in (("a", 4), ("b", None)):
        streams.begin(asking(request_id, interval))
    made = {"a": events("a", 10), "b": events("b", 10)}
    sent = [event for pair in zip(*made.values(), strict=True) for event in streams.pass_on(list(pair))]
    assert [len(event.token_ids) for event in sent if event.id == "a"] == [1, 4, 4, 1]
    assert [len(event.token_ids) for event in sent if event.id == "b"] == [1] * 10


def test_a_request_s_interval_ends_with_it() -> None:
    streams = StreamInterval(1)
    streams.begin(asking("ended", 4))
    streams.begin(asking("aborted", 4))
    streams.pass_on([TokenEvent("ended", [1], FinishReason.STOP)])
    streams.forget(["aborted"])
    for request_id in ("ended", "aborted"):
        again = events(request_id, 3)
        assert [event for one in again for event in streams.pass_on([one])] == again


def test_wait_events_pass_immediately() -> None:
    interval = StreamInterval(4)
    waiting, first, second = TokenEvent("a", [], wait=Wait(3)), TokenEvent("a", [1]), TokenEvent("a", [2])
    assert interval.pass_on([waiting, waiting]) == [waiting, waiting]
    assert interval.pass_on([first]) == [first]
    assert interval.pass_on([second]) == []
