"""A component that cancels the task of its batch line costs that line alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ...doubles.echo_engine import EchoEngine
from .rig import Line, chat_lines, running

Stores = dict[str, Any]


@pytest.fixture
def cancelling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the chat template cancel the task of each message that has a 1."""
    render = JinjaChatTemplate.render

    def cancelling(self: JinjaChatTemplate, messages: Any, *args: Any, **kwargs: Any) -> str:
        if "1" in str(messages):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return render(self, messages, *args, **kwargs)

    monkeypatch.setattr(JinjaChatTemplate, "render", cancelling)


def statuses(lines: list[Line]) -> dict[str, int]:
    return {line["custom_id"]: line["response"]["status_code"] for line in lines}


@pytest.mark.usefixtures("cancelling")
async def test_only_the_line_that_cancels_fails(tokenizer: Tokenizer, stores: Stores) -> None:
    engine = EchoEngine()
    async with running(tokenizer, stores, engine) as rig:
        record = await rig.ended(await rig.create(chat_lines(3)))
        output, errors = await rig.outcome(record)
    assert (record.status, record.num_completed, record.num_failed) == ("completed", 2, 1)
    assert (statuses(output), statuses(errors)) == ({"c0": 200, "c2": 200}, {"c1": 500})
    assert errors[0]["response"]["body"]["error"]["type"] == "server_error"
    assert len(engine.requests) == 3, "the job was retried"
    assert len(engine.aborted) == 1


@pytest.mark.usefixtures("cancelling")
async def test_the_log_says_what_cancelled(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tokenizer, stores) as rig:
        await rig.ended(await rig.create(chat_lines(2)))
    assert "cancelled its own task" in caplog.text
    assert "--no-plugin NAME" in caplog.text


async def test_the_end_of_the_server_fails_no_line(tokenizer: Tokenizer, stores: Stores) -> None:
    """The lines in flight are aborted, get no result, and are run by the next server."""
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as rig:
        batch_id = await rig.create(chat_lines(4, "x" * 300))
        await rig.reaches(batch_id, "in_progress")
        while len(rig.engine.requests) < 4:
            await asyncio.sleep(0.005)
    assert len(rig.engine.aborted) == 4
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(batch_id)
    assert (record.status, record.num_completed, record.num_failed) == ("completed", 4, 0)
