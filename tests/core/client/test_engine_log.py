"""Which engine a log line of the API process is about."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.client.engine_log import EngineLog
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.restarts import RestartPolicy
from llmfw.core.client.supervisor import SupervisedEngineClient

from ...doubles import echo_engine


@pytest.mark.parametrize(
    ("label", "line"),
    [(None, "it ended: 9 %"), (0, "[engine 0] it ended: 9 %"), ("50%s", "[engine 50%s] it ended: 9 %")],
)
def test_lines_have_the_engines_label(
    caplog: pytest.LogCaptureFixture, label: int | str | None, line: str
) -> None:
    EngineLog(logging.getLogger("of.a.test"), label).error("it ended: %d %%", 9)
    assert caplog.messages == [line]


async def test_an_end_names_the_model(caplog: pytest.LogCaptureFixture) -> None:
    config = EngineConfig(model="echo", place=ReplicaPlace(1, 2, "embed"))
    new_life = partial(ProcessEngineClient, config, (sys.executable, echo_engine.__file__))
    client = SupervisedEngineClient(new_life, RestartPolicy(is_on=True, max_per_hour=0), label="embed")
    await client.start()
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    await client.wait_lost()
    await client.close()
    lines = [text for text in caplog.messages if "process was killed" in text or "given up" in text]
    assert len(lines) == 2, caplog.messages
    assert all(text.startswith("[engine embed] ") for text in lines)
