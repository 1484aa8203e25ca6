"""A batch's lines run with the adapters that it was created with, and with no others."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from llmfw.core.base.control import AdapterInfo
from llmfw.core.interfaces.tokenizer import Tokenizer

from ...doubles.echo_engine import EchoEngine
from .rig import Rig, chat_line, running

Stores = dict[str, Any]
LINES = [chat_line("c0", model="red"), chat_line("c1")]
SLOW = 0.1


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.api.batches.line_run.RECHECK_S", 0.02)


def load(rig: Rig, digest: str) -> None:
    """Load the adapter "red" from files with this hash, in place of an earlier one; "": unload it."""
    info = AdapterInfo(name="red", path="/red", version=1, state="ready", rank=8, digest=digest)
    rig.services.models.first.live.generator.names.update([info] if digest else [])


async def says(caplog: pytest.LogCaptureFixture, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("digest", "reason"),
    [("", "'red', which is not loaded"), ("second", "files of the adapter 'red' have changed")],
)
async def test_a_restarted_batch_waits_for_its_adapter(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture, digest: str, reason: str
) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=SLOW)) as rig:
        load(rig, "first")
        batch_id = await rig.create(LINES)
        assert (await rig.reaches(batch_id, "in_progress")).adapters == {"red": "first"}
    async with running(tokenizer, stores) as rig:
        load(rig, digest)
        await says(caplog, reason)
        assert not rig.engine.requests
        load(rig, "first")
        record = await rig.ended(batch_id)
        assert (record.status, record.num_completed) == ("completed", 2)


async def test_answers_of_a_replaced_adapter_are_dropped(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=SLOW)) as rig:
        load(rig, "first")
        batch_id = await rig.create(LINES)
        while len(rig.engine.requests) < 2:
            await asyncio.sleep(0.01)
        load(rig, "second")
        await says(caplog, "files of the adapter 'red' have changed")
        assert (await rig.batches.get(batch_id)).num_completed == 0
        load(rig, "first")
        assert (await rig.ended(batch_id)).num_completed == 2
        assert len(rig.engine.requests) > 2
