"""`truncation: "auto"`: the oldest of a conversation is left out, and what is left is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.responses.items import Item, check_calls
from llmfw.api.responses.truncation import cuts, newest_that_fits, without
from llmfw.core.base.errors import ContextLengthError, RequestError

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, byte_tokenizer, serving

CONTEXT = 100
TRANSCRIPT = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls %}[{{ c.id }}]{% endfor %}"
    "|{% endfor %}"
)
"""A chat template that makes the echo engine answer with the whole conversation."""
TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with (
        serving(EchoEngine(max_model_len=CONTEXT), tokenizer, TRANSCRIPT) as served,
        served.openai() as client,
    ):
        yield client


def message(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def call(call_id: str) -> Any:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str, text: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def answer(sdk: openai.OpenAI, input: Any, **fields: Any) -> Any:
    return sdk.responses.create(model=SERVED_NAME, input=input, truncation="auto", **fields)


def test_a_fitting_conversation_is_not_truncated(sdk: openai.OpenAI) -> None:
    made = answer(sdk, [message("user", "a"), message("assistant", "b"), message("user", "c")])
    assert (made.output_text, made.truncation) == ("u:a|a:b|u:c|", "auto")


def test_truncation_drops_old_turns_and_keeps_instructions(sdk: openai.OpenAI) -> None:
    turns = [m for i in "123456" for m in (message("user", f"q{i}" * 5), message("assistant", f"a{i}" * 5))]
    given = [turns[0], message("developer", "D"), *turns[1:], message("user", "last")]
    made = answer(sdk, given, instructions="S", max_output_tokens=40)
    assert made.output_text == "s:S|s:D|u:q6q6q6q6q6|a:a6a6a6a6a6|u:last|"[:40]


def test_truncation_drops_oldest_calls_with_outputs(sdk: openai.OpenAI) -> None:
    steps = [item for i in "1234" for item in (call(i), output(i, f"r{i}" * 6))]
    made = answer(sdk, [message("user", "task"), *steps], max_output_tokens=50)
    assert made.output_text == "u:task|a:[3]|t:r3r3r3r3r3r3|a:[4]|t:r4r4r4r4r4r4|"


def test_truncation_leaves_a_quarter_for_the_answer(sdk: openai.OpenAI) -> None:
    turns = [m for i in "12345678" for m in (message("user", f"q{i}"), message("assistant", f"a{i}"))]
    made = answer(sdk, [*turns, message("user", "last")])
    assert made.status == "incomplete"
    assert made.usage.input_tokens <= 75 < made.usage.input_tokens + len("u:q1|a:a1|")
    assert made.usage.total_tokens == CONTEXT


def test_an_untruncatable_input_names_both_numbers(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=f"is {CONTEXT} tokens; the prompt alone has 211"):
        answer(sdk, [message("user", "a"), message("assistant", "b"), message("user", "x" * 200)])


def test_truncated_conversations_are_stored_whole(sdk: openai.OpenAI) -> None:
    first = answer(sdk, "x" * 40, max_output_tokens=20)
    more: Any = {"input": "y" * 40, "previous_response_id": first.id, "truncation": "auto"}
    assert sdk.responses.input_tokens.count(model=SERVED_NAME, **more).input_tokens == len("u:|") + 40
    second = sdk.responses.create(model=SERVED_NAME, max_output_tokens=20, **more)
    assert len(list(sdk.responses.input_items.list(second.id))) == 3


def test_truncation_does_not_repair_wrong_requests(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        answer(sdk, "a", max_output_tokens=CONTEXT + 1)
    assert caught.value.param == "max_output_tokens"


kinds = st.one_of(
    st.tuples(st.sampled_from(["user", "assistant", "system", "developer"]), st.text("ab", max_size=5)),
    st.tuples(st.just("call"), st.just("")),
    st.tuples(st.just("output"), st.integers(0, 50)),
    st.tuples(st.just("reasoning"), st.just("")),
)


def conversation(made: Sequence[tuple[str, Any]]) -> list[Item]:
    """Return items in which every output has a call before it."""
    items: list[Item] = []
    calls: list[str] = []
    for i, (kind, value) in enumerate(made):
        if kind == "call":
            calls.append(str(i))
            items.append(call(str(i)))
        elif kind == "reasoning":
            items.append({"type": "reasoning", "summary": []})
        elif kind != "output":
            items.append({"type": "message", "role": kind, "content": value})
        elif calls:
            items.append(output(calls[value % len(calls)], "r"))
    return items


@given(st.lists(kinds, min_size=1, max_size=30).map(conversation))
def test_truncation_leaves_a_valid_conversation(items: list[Item]) -> None:
    places = cuts(items)
    assert places == sorted(set(places))
    answered = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    kept_always = [i for i in items if i.get("role") in ("system", "developer")]
    users = [i for i in items if i.get("role") == "user"]
    previous = len(items)
    for place in places:
        rest = without(items, place)
        assert rest
        assert len(rest) <= previous
        previous = len(rest)
        check_calls(rest, 0)  # no output without its call
        made = {item["call_id"] for item in rest if item["type"] == "function_call"} & answered
        assert made <= {item["call_id"] for item in rest if item["type"] == "function_call_output"}
        assert [item for item in rest if any(item is one for one in kept_always)] == kept_always
        assert not users or any(item is users[-1] for item in rest)


@given(st.lists(kinds, min_size=1, max_size=30).map(conversation), st.integers(0, 30), st.integers(0, 10))
def test_truncation_keeps_the_largest_fitting_rest(items: list[Item], limit: int, room: int) -> None:
    async def make(part: Sequence[Item]) -> int:
        if len(part) > limit:
            raise ContextLengthError("too long")
        return len(part)

    sizes = [len(items), *(len(without(items, place)) for place in cuts(items))]
    fitting = [size for size in sizes if size <= limit]
    roomy = [size for size in fitting if limit - size >= room]
    search = newest_that_fits(items, make, lambda size: limit - size >= room)
    if not fitting:
        with pytest.raises(RequestError, match="too long"):
            asyncio.run(search)
        return
    assert asyncio.run(search) == (max(roomy) if roomy else min(fitting))
