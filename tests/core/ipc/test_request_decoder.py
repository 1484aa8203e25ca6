"""Requests arrive as they were sent, and long lists that they have in common are decoded once."""

from __future__ import annotations

import time

import msgspec
import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec, Request, SamplingParams, Thinking
from llmfw.core.ipc.request_decoder import MAX_KEPT, RequestDecoder
from llmfw.core.ipc.wire import encode

BIAS = {token: token / 100 for token in range(4096)}


def request_with(**sampling: object) -> Request:
    return Request(id="a", prompt=[1, 2], sampling=SamplingParams(**sampling))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        request_with(),
        request_with(temperature=0.5, logit_bias={5: -1.5}, stop=("a",), seed=-(2**63)),
        request_with(logit_bias=BIAS, bad_words=((1,), (2, 3)), max_tokens=7),
        request_with(allowed_token_ids=tuple(range(4096))),
        Request(
            id="é",
            prompt=[2**31],
            sampling=SamplingParams(),
            eos_token_ids=(7,),
            priority=-3,
            grammar=GrammarSpec("regex", "a+"),
            thinking=Thinking(end=(5,), is_open=True),
            tenant="alice",
            tenant_is_key=True,
            timeout_s=0.5,
            fields={"deadline_ms": 5, "place": {"x": [1, "a"]}},
        ),
    ],
)
def test_a_request_arrives_unchanged(request_: Request) -> None:
    decoder = RequestDecoder()
    for _ in range(2):
        assert decoder.decode(encode(request_)) == request_


def test_choices_share_their_long_lists() -> None:
    decoder = RequestDecoder()
    first, second = (decoder.decode(encode(request_with(logit_bias=BIAS, seed=seed))) for seed in (1, 2))
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert first.sampling.logit_bias is second.sampling.logit_bias
    assert (first.sampling.seed, second.sampling.seed) == (1, 2)


def test_few_lists_are_kept() -> None:
    decoder = RequestDecoder()
    for number in range(3 * MAX_KEPT):
        decoder.decode(encode(request_with(logit_bias=BIAS | {0: number / 100})))
    assert all(len(kept) <= MAX_KEPT for kept in decoder._kept.values())


def test_a_choice_with_thousands_of_biases_costs_little() -> None:
    """Each of 128 choices took 3 ms: one request held up the engine for half a second."""
    decoder, payload = RequestDecoder(), encode(request_with(logit_bias=BIAS))
    decoder.decode(payload)
    begun = time.process_time()
    for _ in range(20):
        decoder.decode(payload)
    assert (time.process_time() - begun) / 20 < 0.001


@pytest.mark.parametrize("bias", [{-1: 0.0}, {0: 101.0}, {0: -100.5, 1: 0.0}, {0: 0.0, 1: float("nan")}])
def test_values_out_of_range_are_refused(bias: dict[int, float]) -> None:
    payload = msgspec.msgpack.encode(
        {"type": "add", "id": "a", "prompt": [1], "sampling": {"logit_bias": bias}}
    )
    with pytest.raises(RequestError, match=r"^logit_bias\."):
        RequestDecoder().decode(payload)


@pytest.mark.parametrize("prompt", [["a"], [1.5], None, 7])
def test_a_wrong_type_is_a_decode_error(prompt: object) -> None:
    payload = msgspec.msgpack.encode({"type": "add", "id": "a", "prompt": prompt, "sampling": {}})
    with pytest.raises(msgspec.DecodeError):
        RequestDecoder().decode(payload)
