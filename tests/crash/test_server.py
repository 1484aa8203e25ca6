"""What crash tests stand on: a server that is killed is gone, and one that is started again is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ..length import also
from .server import ServerProcess, can_listen, echo_server, free_port, members

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with echo_server(tmp_path_factory.mktemp("server")) as server:
        yield server


def stored(server: ServerProcess, text: str) -> str:
    """Store a response, and return its id."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        return sdk.responses.create(model="echo", input=text, max_output_tokens=16).id


def test_api_and_engine_share_the_process_group(server: ServerProcess) -> None:
    assert len(server.pids) == 2
    assert not can_listen(server.port)


def test_a_kill_leaves_no_process_or_port(
    server: ServerProcess,
) -> None:
    """The next start uses the same folder."""
    kept = stored(server, "Hello")
    server.kill()
    assert server.pids == []
    assert can_listen(server.port)
    assert list(server.tmp.glob("llmfw*")) == []
    server.start()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        assert sdk.responses.retrieve(kept).id == kept


def test_a_signal_ends_the_server_cleanly(server: ServerProcess) -> None:
    if server.has_ended:
        server.start()
    assert server.stop() == 0
    assert server.pids == []


@pytest.mark.parametrize("seconds", [0.3, *also([0.0, 0.9])])
def test_a_starting_server_can_be_killed(server: ServerProcess, seconds: float) -> None:
    server.kill()
    server.launch()
    time.sleep(seconds)
    server.kill()
    assert server.pids == []


@pytest.mark.long
def test_the_echo_server_has_the_real_api(tmp_path: Path) -> None:
    with echo_server(tmp_path) as server:
        server.kill()
        server.start()
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
            chat = sdk.chat.completions.create(model="echo", messages=[{"role": "user", "content": "Say it"}])
        assert chat.choices[0].message.content == "Say it"
        assert (server.storage / "responses.db").exists()


def test_a_failed_start_raises_the_server_s_message(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="No such option '--no-such-option'"),
        ServerProcess(tmp_path, "--no-such-option"),
    ):
        pass


def test_a_zombie_process_counts_as_ended() -> None:
    sleeper = subprocess.Popen(("sleep", "60"), start_new_session=True)
    assert members(sleeper.pid) == [sleeper.pid]
    os.killpg(sleeper.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert members(sleeper.pid) == []
    sleeper.wait()


def test_a_free_port_can_be_bound() -> None:
    assert can_listen(free_port())
