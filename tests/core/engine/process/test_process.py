"""The engine's server answers each client by itself. The clients here speak to it as the API's process does."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import PinInfo, PinPrefix, SetPolicy
from llmfw.core.base.engine_info import ControlAnswer, EngineInfo, EngineStats
from llmfw.core.base.request import Abort, Control, EventBatch, Request, SamplingParams, StatsQuery
from llmfw.core.ipc.wire import Frames, Launch, decode_from_engine, encode, framed, new_pair, write_launch

from ....doubles import echo_engine
from ....doubles.echo_engine import WAIT

WAIT_S = 30
NUM_COMMANDS = 20


class Client:
    """Speaks to an engine process."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._frames = Frames()
        self._arrived: deque[bytes] = deque()

    def send(self, message: object) -> None:
        self.sock.setblocking(True)
        self.sock.sendall(framed(encode(message)))

    def hears(self, seconds: float) -> bool:
        return bool(self._arrived or select.select([self.sock], [], [], seconds)[0])

    def receive(self) -> object:
        while not self._arrived:
            assert self.hears(WAIT_S), "the server says nothing"
            self._arrived += self._frames.feed(self.sock.recv(2**16))
        return decode_from_engine(self._arrived.popleft())


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """Yield two clients that one engine process has greeted."""
    pairs = [new_pair() for _ in range(2)]
    fds = [theirs.fileno() for _, theirs in pairs]
    command = [sys.executable, echo_engine.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=fds) as process:
        assert process.stdin is not None
        write_launch(process.stdin, Launch(EngineConfig(model="echo"), fds))
        for _, theirs in pairs:
            theirs.close()
        clients = [Client(ours) for ours, _ in pairs]
        for client in clients:
            assert isinstance(client.receive(), EngineInfo)
        yield clients
        process.kill()
        for client in clients:
            client.sock.close()


def test_equal_command_numbers_do_not_mix_clients(
    clients: list[Client],
) -> None:
    for number in range(NUM_COMMANDS):
        for i, client in enumerate(clients):
            client.send(Control(number, PinPrefix([1] * (2 * number + i + 1), 60.0)))
    for i, client in enumerate(clients):
        answers = [client.receive() for _ in range(NUM_COMMANDS)]
        for number, answer in enumerate(answers):
            assert isinstance(answer, ControlAnswer)
            assert isinstance(answer.answer, PinInfo)
            assert (answer.number, answer.answer.num_tokens) == (number, 2 * number + i + 1)


def test_only_the_sender_receives_the_refusal(clients: list[Client]) -> None:
    clients[0].send(Control(7, SetPolicy("x")))
    clients[1].send(Abort(["nobody"]))
    refused = clients[0].receive()
    assert isinstance(refused, ControlAnswer)
    assert refused.failure is not None
    assert (refused.number, refused.failure.kind, refused.failure.param) == (7, "RequestError", "name")
    assert not clients[1].hears(0.1)


def test_background_work_runs_when_idle(clients: list[Client]) -> None:
    for _ in range(100):
        clients[0].send(StatsQuery())
        stats = clients[0].receive()
        assert isinstance(stats, EngineStats)
        if not stats.num_cached_tokens:  # where the double says how much background work is left
            break
    assert not stats.num_cached_tokens


def test_requests_of_a_disconnected_client_end(clients: list[Client]) -> None:
    clients[0].send(Request(id="a", prompt=[WAIT], sampling=SamplingParams(max_tokens=9)))
    clients[0].sock.close()
    for _ in range(100):
        clients[1].send(StatsQuery())
        stats = clients[1].receive()
        assert isinstance(stats, EngineStats)
        if not stats.num_running:
            break
    assert not stats.num_running


def test_a_slow_reader_blocks_no_other_client(clients: list[Client]) -> None:
    """It misses no message."""
    slow, other = clients
    num = 2000
    for i in range(num):
        slow.send(Control(i, PinPrefix([1], 60.0)))
        if i % 100 == 0:
            other.send(StatsQuery())
            assert isinstance(other.receive(), EngineStats)
    assert [slow.receive().number for _ in range(num)] == list(range(num))  # type: ignore[attr-defined]


def test_prompts_larger_than_socket_buffers_arrive(clients: list[Client]) -> None:
    prompt = [2**20 + i % 1000 for i in range(300_000)]
    clients[0].send(Request(id="a", prompt=prompt, sampling=SamplingParams(max_tokens=1)))
    output = clients[0].receive()
    assert isinstance(output, EventBatch)
    assert output.events[0].token_ids == prompt[:1]


@pytest.mark.parametrize("prompt", [["a"], None, [[1]]])
def test_an_unreadable_request_ends_alone(clients: list[Client], prompt: object) -> None:
    """Routes of plugins build requests, whose types nothing checks. One such request ended the engine."""
    first, second = clients
    second.send(Request(id="good", prompt=[1, 2], sampling=SamplingParams(max_tokens=2)))
    first.send({"type": "add", "id": "bad", "prompt": prompt, "sampling": {}})
    answer = first.receive()
    assert isinstance(answer, EventBatch)
    [event] = answer.events
    assert (event.id, event.error_kind) == ("bad", "UnreadableRequestError")
    assert event.error is not None
    assert event.error.startswith("the engine cannot read request 'bad': Expected ")
    assert isinstance(second.receive(), EventBatch)
