"""What is left of a request whose engine has ended."""

from __future__ import annotations

import pytest

from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.request import EmbedRequest, Request, SamplingParams
from llmfw.core.client.request_progress import Continuations, RequestProgress


def request(**fields: object) -> Request:
    return Request(id="a", prompt=[1, 2], sampling=SamplingParams(max_tokens=9), **fields)  # type: ignore[arg-type]


def test_each_request_without_a_seed_gets_its_own() -> None:
    """The same ones after a restart of the server with the same `--random-seed`."""
    drawn = [
        [RequestProgress(request(), continuations).rest.sampling.seed for _ in range(3)]  # type: ignore[union-attr]
        for continuations in (Continuations(5), Continuations(5), Continuations(6))
    ]
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 6
    seeded = Request(id="a", prompt=[1], sampling=SamplingParams(seed=7))
    assert RequestProgress(seeded, Continuations(5)).rest is seeded


def test_the_rest_begins_after_all_that_was_sent() -> None:
    continuations = Continuations(5)
    progress = RequestProgress(request(prompt_logprobs=1, tell_wait=True), continuations)
    first = progress.rest
    assert isinstance(first, Request)
    assert (first.output, first.prompt_logprobs, first.tell_wait) == ([], 1, True)
    for tokens in ([], [7], [8, 9]):
        progress.sent.extend(tokens)
    assert progress.interrupt() is None
    rest = progress.rest
    assert isinstance(rest, Request)
    assert (rest.output, rest.prompt_logprobs, rest.tell_wait) == ([7, 8, 9], None, False)
    assert rest.prompt is first.prompt
    assert rest.sampling == first.sampling
    progress.sent.append(10)
    assert progress.rest.output == [7, 8, 9, 10]  # type: ignore[union-attr]
    assert continuations.count == 1


def test_without_continuations_output_starts_over() -> None:
    for progress in (
        RequestProgress(request(), None),
        RequestProgress(EmbedRequest(id="a", prompts=[[1]]), Continuations(5)),
    ):
        before = progress.rest
        progress.sent.extend([7])
        event = progress.interrupt()
        assert event is not None
        assert event.restarted
        assert progress.rest is before
        progress.sent.append(2**31)  # as before the interruption


def test_output_of_another_adapter_is_not_continued() -> None:
    digests = {"a": "1"}
    progress = RequestProgress(request(adapter="a"), Continuations(5), digests.get)
    digests["a"] = "2"
    assert progress.rest.output == []  # type: ignore[union-attr]
    progress.sent.extend([7])
    with pytest.raises(EngineDeadError, match="adapter 'a' of this request was replaced"):
        _ = progress.rest
    digests["a"] = "1"
    assert progress.rest.output == [7]  # type: ignore[union-attr]


def test_output_of_replaced_weights_is_void() -> None:
    """Not only while the engine ends: a request may wait with its output while the weights are replaced."""
    loads = [0]
    progress = RequestProgress(request(), Continuations(5), num_loads=lambda: loads[0])
    assert not progress.is_void()
    loads[0] = 1  # it waited meanwhile, without output
    assert not progress.is_void()
    progress.sent.append(7)
    assert progress.continues
    loads[0] = 2
    assert progress.is_void()
    assert not progress.continues
    restarted = progress.interrupt()
    assert restarted is not None
    assert restarted.restarted
    assert isinstance(progress.rest, Request)
    assert progress.rest.output == []
    assert not progress.is_void()
