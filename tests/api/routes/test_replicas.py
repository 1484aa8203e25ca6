"""The routes of /admin/replicas: how they read numbers and times, and what they say of a server with one engine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.errors import ConflictError
from llmfw.core.base.replica_commands import (
    AddReplica,
    DrainReplica,
    ListReplicas,
    RemoveReplica,
    ReplicaInfo,
    ReplicaList,
    UndrainReplica,
)

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving
from ..http.test_errors import error_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


class Engines:
    """Takes the place of the client's `control`.

    Attributes:
        asked: the commands so far.
    """

    def __init__(self) -> None:
        self.asked: list[Command] = []

    async def control(self, command: Command) -> Answer:
        self.asked.append(command)
        if isinstance(command, ListReplicas):
            return ReplicaList([ReplicaInfo(index=1, state="running", num_waiting=2)], 4)
        if isinstance(command, AddReplica):
            raise ConflictError("there is no room", code="no_room")
        return ReplicaInfo(index=1, state="draining")


@pytest.fixture
def engines(server: Served, monkeypatch: pytest.MonkeyPatch) -> Engines:
    engines = Engines()
    monkeypatch.setattr(server.client, "control", engines.control)
    return engines


def test_one_engine_is_said_to_be_alone(server: Served) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("DELETE", "/0"),
        ("POST", "/0/drain"),
        ("POST", "/0/undrain"),
    ):
        error = error_of(httpx.request(method, f"{server.url}/admin/replicas{path}"), 400)
        assert error["code"] == "unsupported_operation"
        assert "start it with --replicas" in error["message"]


def test_each_route_sends_its_command(server: Served, engines: Engines) -> None:
    url = f"{server.url}/admin/replicas"
    assert httpx.get(url).json() == {
        "type": "replicas",
        "replicas": [{"type": "replica", "index": 1, "state": "running", "num_waiting": 2}],
        "max_replicas": 4,
    }
    assert httpx.post(f"{url}/1/drain").json() == {"type": "replica", "index": 1, "state": "draining"}
    assert httpx.post(f"{url}/01/undrain").is_success
    assert error_of(httpx.post(url), 409)["code"] == "no_room"
    assert httpx.delete(f"{url}/1").is_success
    assert httpx.delete(f"{url}/1?timeout_s=0.5").is_success
    assert engines.asked == [
        ListReplicas(),
        DrainReplica(1),
        UndrainReplica(1),
        AddReplica(),
        RemoveReplica(1, 0.0),  # the --drain-timeout of `serving`
        RemoveReplica(1, 0.5),
    ]


@pytest.mark.parametrize("index", ["x", "-1", "256", "1e1", "%D9%A1", "9" * 5000])
def test_wrong_numbers_are_refused(server: Served, engines: Engines, index: str) -> None:
    for method, path in (("POST", f"{index}/drain"), ("POST", f"{index}/undrain"), ("DELETE", index)):
        error = error_of(httpx.request(method, f"{server.url}/admin/replicas/{path}"), 400)
        assert error["param"] == "index"
    assert engines.asked == []


@pytest.mark.parametrize("timeout", ["", "x", "-1", "nan", "inf", "3601", "1" * 5000])
def test_wrong_times_are_refused(server: Served, engines: Engines, timeout: str) -> None:
    error = error_of(httpx.delete(f"{server.url}/admin/replicas/1?timeout_s={timeout}"), 400)
    assert error["param"] == "timeout_s"
    assert engines.asked == []
