"""The server reports its state to a service manager: ready, alive, stopping."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfw.api.lifecycle.service_manager import ServiceManager

from ...crash.server import echo_server


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket like systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(10)
        yield sock


def test_a_server_says_how_it_is(
    told: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", told.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "600000")
    with echo_server(tmp_path / "server") as server:
        assert told.recv(4096).startswith(b"READY=1\nSTATUS=Serves echo at http://127.0.0.1:")
        assert [told.recv(4096) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        assert server.stop() == 0
    told.setblocking(False)
    last = [told.recv(4096) for _ in iter(lambda: _has_more(told), False)]
    assert b"STOPPING=1\nSTATUS=Draining" in last


def _has_more(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def test_another_process_s_watchdog_is_left_alone(told: socket.socket) -> None:
    environ = {
        "NOTIFY_SOCKET": told.getsockname(),
        "WATCHDOG_USEC": "30000",
        "WATCHDOG_PID": str(os.getpid() + 1),
    }
    with ServiceManager.of(environ).kept_informed():
        await asyncio.sleep(0.05)
    assert not _has_more_at_once(told)


def _has_more_at_once(sock: socket.socket) -> bool:
    sock.setblocking(False)
    return _has_more(sock)


def test_an_abstract_address_works() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0llmfw-test-{os.getpid()}")
        ServiceManager(f"@llmfw-test-{os.getpid()}").ready("Serves a at b")
        assert sock.recv(4096) == b"READY=1\nSTATUS=Serves a at b"


def test_without_a_service_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager.of({}).ready("Serves a at b")
    assert not caplog.records


def test_a_manager_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "gone")).stopping("Draining")
    assert "was not told" in caplog.text
