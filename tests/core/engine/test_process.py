"""The engine's server answers each client by itself. The clients here speak to it as the API's process does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import zmq

from llmfw.core.client.wire import (
    Hello,
    Launch,
    decode_from_engine,
    encode,
    new_endpoint,
    open_socket,
    write_launch,
)
from llmfw.core.config import EngineConfig
from llmfw.core.control import PinInfo, PinPrefix, SetPolicy
from llmfw.core.request import Abort, Control, ControlAnswer, EngineInfo

from ...doubles import echo_engine

WAIT_MS = 30_000
NUM_COMMANDS = 20


@pytest.fixture
def clients() -> Iterator[list[zmq.Socket[bytes]]]:
    """Yield sockets of two clients that one engine process has answered."""
    endpoint = new_endpoint()
    with (
        subprocess.Popen([sys.executable, echo_engine.__file__], stdin=subprocess.PIPE) as process,
        zmq.Context() as context,
        open_socket(context, zmq.DEALER) as first,
        open_socket(context, zmq.DEALER) as second,
    ):
        assert process.stdin is not None
        write_launch(process.stdin, Launch(EngineConfig(model="echo"), endpoint))
        for client in (first, second):
            client.connect(endpoint.address)
            client.send(encode(Hello()))
            assert isinstance(receive(client), EngineInfo)
        yield [first, second]
        process.kill()
    endpoint.remove()


def receive(client: zmq.Socket[bytes]) -> object:
    assert client.poll(WAIT_MS), "the server says nothing"
    return decode_from_engine(client.recv())


def test_clients_that_number_their_commands_alike_get_their_own_answers(
    clients: list[zmq.Socket[bytes]],
) -> None:
    for number in range(NUM_COMMANDS):
        for i, client in enumerate(clients):
            client.send(encode(Control(number, PinPrefix([1] * (2 * number + i + 1), 60.0))))
    for i, client in enumerate(clients):
        answers = [receive(client) for _ in range(NUM_COMMANDS)]
        for number, answer in enumerate(answers):
            assert isinstance(answer, ControlAnswer)
            assert isinstance(answer.answer, PinInfo)
            assert (answer.number, answer.answer.num_tokens) == (number, 2 * number + i + 1)


def test_a_refused_command_is_told_to_its_own_client_alone(clients: list[zmq.Socket[bytes]]) -> None:
    clients[0].send(encode(Control(7, SetPolicy("x"))))
    clients[1].send(encode(Abort(["nobody"])))
    refused = receive(clients[0])
    assert isinstance(refused, ControlAnswer)
    assert refused.failure is not None
    assert (refused.number, refused.failure.kind, refused.failure.param) == (7, "RequestError", "name")
    assert not clients[1].poll(100)
