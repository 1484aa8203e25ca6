"""The engine's part of a request, a step and a token takes a bounded number of Python calls, whatever the machine does."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from unittest.mock import create_autospec

import pytest

import llmfw.core
from llmfw.core.base.request import EventBatch, Request, SamplingParams
from llmfw.core.engine.process.connections import Client, Connections
from llmfw.core.engine.process.process import EngineServer
from llmfw.core.engine.process.waker import Waker
from llmfw.core.ipc.wire import decode_from_engine, encode

from ..generation.running import build_engine
from ..generation.tiny_models import SERVABLE, save_random_model

CORE = str(Path(llmfw.core.__file__).parent)
NUM_TOKENS = 8
HINT = (
    "{0} takes {1} Python calls in the engine, and at most {2} are allowed: {3}. Take out what rows that do not need the new "
    "work pay for it; raise the bound only for work that each of them needs"
)


class Driver:
    """Sends an engine requests, and waits for the end of all before it sends the next ones."""

    def __init__(self, model: Path) -> None:
        self._client = create_autospec(Client, instance=True, is_gone=False)
        connections = create_autospec(Connections, instance=True, clients=[])
        connections.poll, connections.send = self._poll, self._take
        engine = build_engine(model, page_size=16)
        self._server = EngineServer(engine, connections, create_autospec(Waker, instance=True))
        self._numbers = itertools.count()
        self._waiting: list[bytes] = []
        self._num_open = 0

    def run(self, num_requests: int, num_tokens: int) -> None:
        """Let a number of requests run at once, to their end."""
        sampling = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, seed=1)
        self._num_open = num_requests
        self._waiting = [
            encode(Request(id=f"r{number}", prompt=[1 + number % 7, 2, 3], sampling=sampling))
            for number in itertools.islice(self._numbers, num_requests)
        ]
        with pytest.raises(KeyboardInterrupt):
            self._server.run()

    def _poll(self, timeout_s: float | None) -> list[tuple[Client, list[bytes]]]:
        if not self._num_open:
            raise KeyboardInterrupt
        found, self._waiting = self._waiting, []
        return [(self._client, found)] if found else []

    def _take(self, client: Client, payload: bytes) -> None:
        batch = decode_from_engine(payload)
        assert isinstance(batch, EventBatch)
        self._num_open -= sum(event.finish_reason is not None for event in batch.events)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    driver = Driver(save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"]))
    for _ in range(2):
        driver.run(4, NUM_TOKENS)  # calls that only the first steps need
    return driver


def calls_of(work: Callable[[], None]) -> Counter[str]:
    """Return how often each function of the core is called."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(CORE):
            calls[f"{code.co_filename.removeprefix(CORE)}:{code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def check(what: str, more: Counter[str], fewer: Counter[str], num: int, most: int) -> None:
    """Assert that the difference of two counts is at most `most` for each of `num`."""
    difference = Counter(more)
    difference.subtract(fewer)
    found = round(sum(difference.values()) / num)
    assert found <= most, HINT.format(what, found, most, difference.most_common(12))
    assert found > most / 2, f"{what} takes {found} Python calls now: lower the bound of {most}"


def test_a_step_takes_few_calls(driver: Driver) -> None:
    short, long = (calls_of(lambda num=num: driver.run(1, num)) for num in (NUM_TOKENS, 2 * NUM_TOKENS))  # type: ignore[misc]
    check("a step with one token", long, short, NUM_TOKENS, 175)


def test_a_token_takes_few_calls(driver: Driver) -> None:
    """Of the same step, a token of each further sequence costs a fraction."""
    few, many = (
        [calls_of(lambda n=n, num=num: driver.run(n, num)) for num in (NUM_TOKENS, 2 * NUM_TOKENS)]  # type: ignore[misc]
        for n in (2, 10)
    )
    check("a token", many[1] + few[0], many[0] + few[1], 8 * NUM_TOKENS, 6)


def test_a_request_takes_few_calls(driver: Driver) -> None:
    few, many = (calls_of(lambda n=n: driver.run(n, 1)) for n in (2, 18))  # type: ignore[misc]
    check("a request of one token", many, few, 16, 225)
