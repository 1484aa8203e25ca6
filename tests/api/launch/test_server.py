"""`Server` starts a whole server, waits until it is ready, and leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from llmfw.api.launch.arguments import arguments_of, secrets_of
from llmfw.api.launch.server import Server, ServerStartError
from llmfw.core.base.errors import ConfigError

from ...crash.server import members, wait_until

pytestmark = pytest.mark.slow

SMALL = {"max_total_tokens": 4096, "max_running_requests": 4}
OWNER = """
import time
from llmfw.api.launch.server import Server
server = Server("demo", max_total_tokens=4096)
server.launch()
print(server.pid, flush=True)
time.sleep(600)
"""


def test_a_block_has_a_server_that_answers() -> None:
    with Server("demo", api_key="ann=secret", **SMALL) as server:  # type: ignore[arg-type]
        assert server.base_url == f"{server.url}/v1"
        reply = server.openai().completions.create(model="demo", prompt="Once", max_tokens=3)
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 3
        assert httpx.get(f"{server.base_url}/models").status_code == 401
        assert b"secret" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert "Model 'demo' is ready at" in server.log
    assert server.exit_code == 0
    assert members(server.pid or 0) == []
    assert server.terminate() == 0


def test_a_failed_start_shows_the_log() -> None:
    server = Server("no-such-model")
    with pytest.raises(
        ServerStartError, match=r"exit code 1 before it was ready; the end of its log:\n.*no-such-model"
    ):
        server.launch().wait()
    assert not server.is_running


def test_a_start_that_takes_too_long_is_ended() -> None:
    server = Server("demo", start_timeout_s=0.5)
    with pytest.raises(ServerStartError, match=r"not ready after 0\.5 s"), server:
        pass
    assert members(server.pid or 0) == []


@pytest.mark.long
def test_a_late_error_shows_the_servers_log() -> None:
    def use() -> None:
        with Server("demo", **SMALL) as server:  # type: ignore[arg-type]
            httpx.post(f"{server.url}/admin/drain")
            wait_until(lambda: not server.is_running, 20, "the drain")
            httpx.get(server.url)

    with pytest.raises(httpx.TransportError) as caught:
        use()
    assert "The server has ended before. The end of its log:" in caught.value.__notes__[0]


def test_a_server_ends_with_its_killed_owner() -> None:
    with subprocess.Popen((sys.executable, "-c", OWNER), stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        time.sleep(1.0)
        assert members(pid)
        owner.kill()
    wait_until(lambda: not members(pid), 30, "the end of the server")


def test_settings_become_arguments() -> None:
    options = {"policy.max_overtaken": 8, "drafter.names": ["a"]}
    settings = {"max_total_tokens": 64, "strict_params": True, "overlap": False, "port": None}
    assert arguments_of(settings | {"options": options, "allow_host": ["a", "b"], "api_key": "x"}) == [
        *("--max-total-tokens=64", "--strict-params", "--disable-overlap-schedule"),
        *("-o", "policy.max_overtaken=8", "-o", 'drafter.names=["a"]', "--allow-host=a", "--allow-host=b"),
    ]
    assert secrets_of({"api_key": ["ann=x", "y"], "admin_api_key": "z"}) == {
        "LLMFW_API_KEY": "ann=x\ny",
        "LLMFW_ADMIN_API_KEY": "z",
    }


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_total_token": 1}, "no setting 'max_total_token'"),
        ({"uds": "/tmp/x"}, "leave uds out"),
        ({"overlap": True}, "overlap is True; it must be False"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Server("demo", **settings)
