"""Full queues, timeouts and news of waiting in the whole engine, by a clock that the test turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core.base.errors import OverloadedError, RequestError, TenantLimitError
from llmfw.core.base.request import FinishReason, Request, SamplingParams, TokenEvent, Wait
from llmfw.core.engine.generation.engine import Engine

from ....doubles.trie_grammar import FIRST_BYTE, TrieBackend, one_of
from .running import build_engine
from .tiny_models import SERVABLE, save_byte_tokenizer, save_random_model

LONG = SamplingParams(max_tokens=100, temperature=0, ignore_eos=True)


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[False, True], ids=["plain", "overlapped"])
def build(llama: Path, clock: Clock, request: pytest.FixtureRequest) -> Callable[..., Engine]:
    def build(**settings: object) -> Engine:
        engine = build_engine(llama, overlap=request.param, max_running_requests=1, policy="fcfs", **settings)
        engine._admission_control._clock = clock
        return engine

    return build


def asked(id: str, size: int = 5, **fields: object) -> Request:
    return Request(id=id, **({"prompt": [7] * size, "sampling": LONG} | fields))  # type: ignore[arg-type]


def steps(engine: Engine, count: int) -> list[TokenEvent]:
    return [event for _ in range(count) for event in engine.step()]


def drained(engine: Engine) -> list[TokenEvent]:
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def ends(events: list[TokenEvent]) -> dict[str, str]:
    return {event.id: event.error or str(event.finish_reason) for event in events if event.finish_reason}


def test_a_full_queue_refuses_until_one_leaves(build: Callable[..., Engine]) -> None:
    engine = build(max_queued_requests=2)
    engine.add(asked("a"))
    engine.step()
    engine.add(asked("b"))
    engine.add(asked("c"))
    with pytest.raises(OverloadedError, match="2 requests wait"):
        engine.add(asked("d"))
    engine.abort("c")
    engine.add(asked("d"))
    assert set(ends(drained(engine))) == {"a", "b", "d"}


def test_a_full_queue_of_tokens_refuses_long_prompts(build: Callable[..., Engine]) -> None:
    engine = build(max_queued_tokens=50)
    engine.add(asked("a", 90))
    with pytest.raises(OverloadedError, match="90 tokens wait"):
        engine.add(asked("b", 1))
    engine.step()
    engine.add(asked("b", 50))


def test_deferrable_requests_are_never_refused(build: Callable[..., Engine]) -> None:
    engine = build(max_queued_requests=1, max_tenant_requests=1)
    for i in range(5):
        engine.add(asked(f"batch{i}", deferrable=True))
    engine.add(asked("live"))
    engine.add(asked("batch5", deferrable=True))


def test_tenant_limits_count_waiting_and_running_requests(build: Callable[..., Engine]) -> None:
    engine = build(max_tenant_requests=2)
    engine.add(asked("a", tenant="ann"))
    engine.step()
    engine.add(asked("b", tenant="ann"))
    with pytest.raises(TenantLimitError, match="'ann' has 2 requests"):
        engine.add(asked("c", tenant="ann"))
    engine.add(asked("c", tenant="bob"))
    drained(engine)
    engine.add(asked("d", tenant="ann"))


def test_a_full_queue_still_reports_invalid_requests(build: Callable[..., Engine]) -> None:
    engine = build(max_queued_requests=1)
    engine.add(asked("a"))
    with pytest.raises(RequestError, match="prompt is empty"):
        engine.add(asked("b", 0))


def test_a_request_ends_at_its_timeout(build: Callable[..., Engine], clock: Clock) -> None:
    """This holds for running requests as for waiting ones."""
    engine = build()
    engine.add(asked("runs", timeout_s=5.0))
    engine.add(asked("waits", timeout_s=5.0))
    engine.add(asked("third", timeout_s=5.0))
    engine.add(asked("stays"))
    told = sum(len(event.token_ids) for event in steps(engine, 13))
    assert told >= 12  # overlapped, the last step's token is not told yet
    clock.now += 5.1
    ended = ends(steps(engine, 1))
    assert ended == {
        "runs": f"the request's timeout of 5 s has passed after {told} of at most 100 tokens",
        "waits": "the request's timeout of 5 s has passed while 0 requests were before it",
        "third": "the request's timeout of 5 s has passed while 1 request was before it",
    }
    assert ends(drained(engine)) == {"stays": "length"}


def test_a_late_request_frees_its_pages_immediately(build: Callable[..., Engine], clock: Clock) -> None:
    engine = build(disable_radix_cache=True)
    engine.add(asked("a", 50, timeout_s=1.0))
    steps(engine, 3)
    assert engine.stats().num_used_tokens >= 50
    clock.now += 2
    [end] = engine.step()
    assert (end.finish_reason, end.error_kind) == (FinishReason.ERROR, "DeadlineError")
    assert engine.stats().num_used_tokens == 0
    assert engine.sleep_s is None


def test_deadlines_wake_an_engine_waiting_for_grammars(
    build: Callable[..., Engine], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = threading.Event()
    compile = TrieBackend.compile
    monkeypatch.setattr(
        TrieBackend, "compile", lambda self, spec: (compiled.wait(20), compile(self, spec))[1]
    )
    engine = build()
    engine.add(asked("a", grammar=one_of("red"), eos_token_ids=(1,), timeout_s=30.0, tell_wait=True))
    assert engine.has_work  # its client is to be told
    assert engine.step() == [TokenEvent("a", [], wait=Wait(0))]
    assert not engine.has_work
    assert engine.sleep_s == pytest.approx(1.0)
    clock.now += 30.0
    assert engine.has_work
    assert ends(engine.step())["a"].endswith("30 s has passed while its grammar was compiled")
    compiled.set()
    assert engine.sleep_s is None


def test_waiting_requests_receive_position_and_estimate(build: Callable[..., Engine], clock: Clock) -> None:
    engine = build()
    short = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    for i in range(5):
        engine.add(asked(f"r{i}", sampling=short, tell_wait=True))
    waits: dict[str, list[Wait]] = {}
    while engine.has_work:
        for event in engine.step():
            if event.wait is not None:
                waits.setdefault(event.id, []).append(event.wait)
        clock.now += 0.25
    assert [waits[f"r{i}"][0] for i in range(1, 5)] == [Wait(i - 1) for i in range(1, 5)]
    assert [wait.num_ahead for wait in waits["r4"]] == sorted(
        (wait.num_ahead for wait in waits["r4"]), reverse=True
    )
    last = waits["r4"][-1]
    assert last.seconds == pytest.approx(1.0 * (last.num_ahead + 1), rel=0.5)
    assert len(waits["r4"]) <= 6  # once a second


def test_a_long_prefill_reports_the_admission(build: Callable[..., Engine], clock: Clock) -> None:
    engine = build(chunked_prefill_size=4)
    engine.add(asked("a", 40, tell_wait=True))
    told = []
    for _ in range(5):
        told += [event.wait for event in engine.step()]
        clock.now += 0.08
    assert told == [Wait(0, 0.0)]


def test_waits_are_reported_only_on_request(build: Callable[..., Engine], clock: Clock) -> None:
    engine = build()
    for i in range(3):
        engine.add(asked(f"r{i}"))
    assert not any(event.wait for event in drained(engine))
