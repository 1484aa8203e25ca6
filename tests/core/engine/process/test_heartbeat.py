"""What an engine process does can be read from outside at any time."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.engine.process.heartbeat import BEAT_S, Heartbeat, HeartbeatReader, Phase, new_page

from ....doubles import echo_engine


def test_writer_and_reader_share_one_page() -> None:
    page = new_page()
    reader = HeartbeatReader(page)
    heartbeat = Heartbeat(os.dup(page))
    os.close(page)
    assert reader.read() == (0, 0, Phase.BUILDING, 0)
    heartbeat.idle()
    heartbeat.busy()
    heartbeat.step(512)
    assert reader.read() == (0, 3, Phase.STEP, 512)
    heartbeat.start_beating()
    time.sleep(2.5 * BEAT_S)
    assert reader.read().beats >= 2


async def test_an_engine_process_reports_waiting_and_progress() -> None:
    client = ProcessEngineClient(EngineConfig(model="echo"), (sys.executable, echo_engine.__file__))
    await client.start()
    while client.heartbeat().phase is not Phase.IDLE:
        await asyncio.sleep(0.01)
    before = client.heartbeat().progress
    async for _ in client.generate(Request(id="a", prompt=[1, 2], sampling=SamplingParams())):
        assert client.heartbeat().progress > before
    await client.close()
