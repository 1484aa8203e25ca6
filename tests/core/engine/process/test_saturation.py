"""An engine that always has more to do is not taken for one that hangs: its loop reports every step.

`tests/crash/test_false_alarms.py` saturates a real server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import create_autospec

import pytest

from llmfw.core.base.request import Request, SamplingParams, TokenEvent
from llmfw.core.client.watchdog import LOOK_S, Hang, Watchdog, WatchdogLimits
from llmfw.core.engine.process.connections import Connections
from llmfw.core.engine.process.heartbeat import Heartbeat, HeartbeatReader, new_page
from llmfw.core.engine.process.process import EngineServer
from llmfw.core.engine.process.waker import Waker

from ....doubles.echo_engine import EchoEngine

LIMIT_S = 300.0
NUM_STEPS = 40


class SlowEngine(EchoEngine):
    """Has steps that take minutes of a clock of its own, and a watchdog that looks at it meanwhile.

    Args:
        reader: of the heartbeat.
        step_s: seconds of a step.

    Attributes:
        hangs: what the watchdog found.
    """

    def __init__(self, reader: HeartbeatReader, step_s: float) -> None:
        super().__init__()
        self.hangs: list[Hang] = []
        self._now, self._step_s, self._num_left = 0.0, step_s, NUM_STEPS
        # A process whose state is unknown, and which never beats: its reports alone say that it lives.
        limits = WatchdogLimits(LIMIT_S, silent_s=LIMIT_S)
        self._watchdog = Watchdog(limits, reader.read, lambda: None, lambda: self._now)

    def step(self) -> list[TokenEvent]:
        events = super().step()
        for _ in range(int(self._step_s / LOOK_S)):
            self._now += LOOK_S
            self.hangs += filter(None, [self._watchdog.look()])
        self._num_left -= 1
        if not self._num_left:
            raise EOFError("the test has seen enough")
        return events


@pytest.fixture
def heartbeat() -> Iterator[tuple[Heartbeat, HeartbeatReader]]:
    page = new_page()
    reader = HeartbeatReader(page)
    yield Heartbeat(os.dup(page)), reader
    os.close(page)


@pytest.mark.parametrize(("step_s", "hangs"), [(0.8 * LIMIT_S, False), (1.2 * LIMIT_S, True)])
def test_saturation_alone_is_no_hang(
    heartbeat: tuple[Heartbeat, HeartbeatReader], step_s: float, hangs: bool
) -> None:
    reports, reader = heartbeat
    engine = SlowEngine(reader, step_s)
    connections = create_autospec(Connections, instance=True, clients=[])
    connections.poll.return_value = []
    server = EngineServer(engine, connections, create_autospec(Waker, instance=True), heartbeat=reports)
    for number in range(16):
        prompt = list(range(NUM_STEPS * 2))
        engine.add(Request(id=str(number), prompt=prompt, sampling=SamplingParams(max_tokens=len(prompt))))
    with pytest.raises(SystemExit):
        server.run()
    assert bool(engine.hangs) is hangs
