"""An engine among several reports its cache with the events of a step, and in full when asked; one alone reports nothing."""

from __future__ import annotations

from unittest.mock import create_autospec

import numpy as np
import pytest

from llmfw.core.base.engine_info import EngineInfo, EngineReport, FromEngine
from llmfw.core.base.request import EventBatch, ReportQuery, Request, SamplingParams, ToEngine, TokenEvent
from llmfw.core.engine.process.connections import Client, Connections
from llmfw.core.engine.process.process import EngineServer
from llmfw.core.engine.process.reporter import EngineReporter
from llmfw.core.engine.process.waker import Waker
from llmfw.core.ipc.wire import decode_from_engine, encode
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_hash import block_hashes
from llmfw.core.schedule.cache.radix_cache import RadixCache

from ....doubles.echo_engine import EchoEngine

PROMPT = np.arange(40, dtype=np.int32)
HASHES = block_hashes(PROMPT, "", 16)


class CachingEngine(EchoEngine):
    """Has PROMPT in its prefix cache from its first step on."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = KVPool(100, 1)
        self._cache = RadixCache(self._pool)
        self.cache_journal = self._cache.start_journal()

    def step(self) -> list[TokenEvent]:
        own = self._pool.allocate(len(PROMPT))
        _, theirs = self._cache.insert(PROMPT, own)
        self._pool.free(own[own != theirs])
        return super().step()


def sent(engine: CachingEngine, reporter: EngineReporter | None, *polled: list[ToEngine]) -> list[FromEngine]:
    """Return what an engine sends that gets these messages, those of each list between two steps."""
    client = create_autospec(Client, instance=True, is_gone=False)
    connections = create_autospec(Connections, instance=True, clients=[client])
    turns = [[(client, [encode(message) for message in messages])] for messages in polled]
    connections.poll.side_effect = [*turns, EOFError("the test has seen enough")]
    server = EngineServer(engine, connections, create_autospec(Waker, instance=True), reporter=reporter)
    with pytest.raises(SystemExit):
        server.run()
    return [decode_from_engine(call.args[1]) for call in connections.send.call_args_list]


def hashes(report: FromEngine) -> list[int]:
    assert isinstance(report, EngineReport)
    return np.frombuffer(report.added, np.uint64).tolist()  # type: ignore[no-any-return]


def test_reports_come_before_the_events() -> None:
    """So a router knows that a prompt is cached when its first token comes."""
    engine = CachingEngine()
    request = Request(id="a", prompt=[1, 2, 3], sampling=SamplingParams(max_tokens=3))
    info, report, events, *rest = sent(engine, EngineReporter(engine.cache_journal), [request], [])
    assert isinstance(info, EngineInfo)
    assert sorted(hashes(report)) == sorted(HASHES)
    assert isinstance(events, EventBatch)
    assert not any(isinstance(each, EngineReport) for each in rest)


def test_all_is_reported_when_asked() -> None:
    engine = CachingEngine()
    request = Request(id="a", prompt=[1, 2, 3], sampling=SamplingParams(max_tokens=3))
    found = sent(engine, EngineReporter(engine.cache_journal), [request], [ReportQuery()])
    first, whole = (each for each in found if isinstance(each, EngineReport))
    assert (whole.is_whole, whole.number) == (True, first.number + 1)
    assert sorted(hashes(whole)) == sorted(HASHES)


def test_an_engine_alone_reports_nothing() -> None:
    request = Request(id="a", prompt=[1, 2, 3], sampling=SamplingParams(max_tokens=3))
    found = sent(CachingEngine(), None, [request], [ReportQuery()], [])
    assert not any(isinstance(each, EngineReport) for each in found)
    assert any(isinstance(each, EventBatch) for each in found)
