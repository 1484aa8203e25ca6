"""What a request may load of stored responses is bounded, and is counted before it is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from llmfw.api.responses import loads, stored
from llmfw.api.responses.loads import SMALL_BYTES, Loads

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, byte_tokenizer, serving


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer) as served, served.openai() as client:
        yield client


def never(*_: object) -> Any:
    raise AssertionError("a turn was decoded")


def test_turns_too_large_are_refused_before_decoding(
    sdk: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sdk.responses.create(model=SERVED_NAME, input="a" * 100)
    second = sdk.responses.create(model=SERVED_NAME, input="b" * 100, previous_response_id=first.id)
    monkeypatch.setattr(loads, "MAX_BYTES", 2000)
    monkeypatch.setattr(stored, "_decode_items", never)
    with pytest.raises(
        openai.BadRequestError, match=r"previous_response_id leads to .* may load 2000"
    ) as info:
        sdk.responses.create(model=SERVED_NAME, input="c", previous_response_id=second.id, truncation="auto")
    assert (info.value.code, info.value.param) == ("conversation_too_large", "previous_response_id")
    with pytest.raises(openai.BadRequestError, match="may load 2000"):
        sdk.responses.input_items.list(second.id)


def test_referenced_large_responses_are_summed(sdk: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [sdk.responses.create(model=SERVED_NAME, input="a" * 100) for _ in range(3)]
    monkeypatch.setattr(loads, "MAX_BYTES", 2500)
    references: Any = [{"type": "item_reference", "id": each.output[0].id} for each in made]
    with pytest.raises(openai.BadRequestError, match=r"input\[\d\].id leads to"):
        sdk.responses.create(model=SERVED_NAME, input=references)
    sdk.responses.create(model=SERVED_NAME, input=references[:1] * 3)


@pytest.mark.parametrize(("size", "is_free"), [(SMALL_BYTES, True), (SMALL_BYTES + 1, False)])
async def test_a_tenant_loads_one_large_conversation_at_once(size: int, is_free: bool) -> None:
    held = Loads()

    async def load(tenant: str) -> None:
        async with held.of(tenant):
            pass

    async with held.of("a") as first:
        own = asyncio.create_task(load("a"))
        await load("b")
        first.count(size, "x")
        first.loaded()
        for _ in range(5):
            await asyncio.sleep(0)
        assert own.done() == is_free
    await own


async def test_a_few_tenants_load_at_once() -> None:
    held, num_at_once, most = Loads(), 0, 0

    async def load(tenant: str) -> None:
        nonlocal num_at_once, most
        async with held.of(tenant):
            num_at_once += 1
            most = max(most, num_at_once)
            await asyncio.sleep(0)
            num_at_once -= 1

    await asyncio.gather(*(load(str(i)) for i in range(10)))
    assert most == loads.MAX_AT_ONCE
