"""`llmfw serve` as a process: how it starts, fails, and ends. The engine is the real one, with random weights."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from ...doubles import serve_echo
from ...doubles.echo_engine import WAIT

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}
READY = "The server is fired up and ready to roll!"
LLMFW = (sys.executable, "-m", "llmfw.api", "serve")


@dataclass
class Process:
    """A running `llmfw serve`, and what it has written so far."""

    popen: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def url(self) -> str:
        found = re.search(r"running on (http://\S+)", self.log)
        assert found, self.log
        return found[1]

    def read(self) -> None:
        assert self.popen.stderr is not None
        self.lines.extend(self.popen.stderr)

    def wait_for(self, text: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.log:
            assert self.popen.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def end(self, number: int, timeout_s: float = 15) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(timeout_s)

    def children(self) -> list[int]:
        threads = Path(f"/proc/{self.popen.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]

    def engine_pid(self) -> int:
        """Return the child that does not compile grammars."""
        [pid] = [
            pid for pid in self.children() if b"grammars" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return pid


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


@contextmanager
def running(*command: str) -> Iterator[Process]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as popen:
        process = Process(popen)
        reader = threading.Thread(target=process.read)
        reader.start()
        try:
            yield process
        finally:
            popen.kill()
            reader.join(20)


@pytest.fixture(scope="module")
def process(model: Path) -> Iterator[Process]:
    """Start the whole server once; tests that use it come in an order, the last one ends it."""
    options = ("--load-format", "dummy", "--port", "0", "--served-model-name", "tiny")
    with running(*LLMFW, str(model), *options, "--decode-log-interval", "5") as process:
        process.wait_for(READY)
        yield process


@pytest.fixture
def echoing(model: Path) -> Iterator[Process]:
    with running(sys.executable, serve_echo.__file__, str(model)) as process:
        yield process


def sdk_of(process: Process) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{process.url}/v1", api_key="None", max_retries=0)


@pytest.mark.long
def test_the_log_uses_the_established_line_format(process: Process) -> None:
    with sdk_of(process) as sdk:
        sdk.completions.create(model="tiny", prompt="Hello", max_tokens=20)
    process.wait_for("POST /v1/completions")
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    for line in (
        r"Settings: model='.*', load_format='dummy', .*served_model_name='tiny'.*; the others",
        r"Load weight end\. type=LlamaForCausalLM, dtype=torch\.float32",
        r"KV Cache is allocated\. #tokens: \d+",
        r"max_total_num_tokens=\d+, chunked_prefill_size=\d+, .*context_len=8192",
        r"INFO:     Uvicorn running on http://127\.0\.0\.1:\d+ \(Press CTRL\+C to quit\)",
        re.escape(READY),
        r"Prefill batch\. #new-seq: 1, #new-token: 5, #cached-token: 0",
        r"Decode batch\. #running-req: 1",
        r'INFO:     127\.0\.0\.1:\d+ - "POST /v1/completions HTTP/1\.1" 200 OK',
    ):
        assert re.search(stamp + line, process.log), line


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_command_in_the_log_works(process: Process) -> None:
    process.wait_for("Try it:")
    process.wait_for("\ncurl ")
    [command] = [line for line in process.lines if line.startswith("curl ")]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["model"] == "tiny"


def test_the_start_fits_a_screen(process: Process) -> None:
    start = process.log.partition("Try it:")[0].splitlines()
    assert len(start) <= 18
    assert "random_seed" not in process.log

    long_path = re.compile("model='[^']*'")
    start = [long_path.sub("model='demo'", line) for line in start if not line.startswith("warning: ")]
    command = next(line for line in process.lines if line.startswith("curl "))
    assert sum(math.ceil(len(line.rstrip()) / 80) for line in (*start, command)) <= 23
    assert start[-1].endswith(
        f"Model 'tiny' is ready at {process.url}/v1 (the base URL for OpenAI clients). "
    )


def test_an_idle_server_uses_almost_no_cpu(process: Process) -> None:
    def seconds(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    pids = (process.popen.pid, process.engine_pid())
    spent = -1.0
    for _ in range(20):  # what it does once, while nobody waits; an engine that never rests is told below
        now = seconds(pids[1])
        if now == spent:
            break
        spent = now
        time.sleep(0.5)
    before = [seconds(pid) for pid in pids]
    time.sleep(2)
    api, engine = (seconds(pid) - start for pid, start in zip(pids, before, strict=True))
    assert engine <= 0.02
    assert api <= 0.06


@pytest.mark.long
def test_a_killed_engine_is_replaced(process: Process) -> None:
    """Its streams are continued by the next engine."""
    with sdk_of(process) as sdk:
        endless: Any = {"ignore_eos": True}
        stream = sdk.completions.create(
            model="tiny", prompt="x", max_tokens=4000, stream=True, extra_body=endless
        )
        next(iter(stream))
        os.kill(process.engine_pid(), signal.SIGKILL)
        while (reply := httpx.get(process.url + "/health")).status_code == 200:
            time.sleep(0.01)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_restarting")
        assert reply.headers["retry-after"] == "5"
        assert list(stream)[-1].choices[0].finish_reason == "length"
        assert sdk.completions.create(model="tiny", prompt="x", max_tokens=3).usage.completion_tokens == 3
    for path in ("/health", "/health_generate"):
        assert httpx.get(process.url + path).json() == {"status": "ok"}
    assert "llmfw_engine_restarts_total 1" in httpx.get(process.url + "/metrics").text
    assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.log


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_streams_and_processes_within_seconds(model: Path, number: int) -> None:
    with running(sys.executable, serve_echo.__file__, str(model), "--drain-timeout", "1") as echoing:
        echoing.wait_for(READY)
        engine = echoing.engine_pid()
        with sdk_of(echoing) as sdk:
            stream = sdk.completions.create(model="tiny", prompt=[65, WAIT], stream=True)
            started = time.monotonic()
            assert echoing.end(number) == 0
            assert time.monotonic() - started < 20
            with pytest.raises(openai.APIError, match="closed"):
                list(stream)
        assert "Traceback" not in echoing.log
        assert not Path(f"/proc/{engine}").exists()


def test_running_requests_finish_after_sigterm(echoing: Process) -> None:
    echoing.wait_for(READY)
    with sdk_of(echoing) as sdk:
        stream = sdk.completions.create(model="tiny", prompt="a" * 50, max_tokens=50, stream=True)
        texts = [next(iter(stream)).choices[0].text]
        echoing.popen.send_signal(signal.SIGTERM)
        texts += [chunk.choices[0].text for chunk in stream]
    assert "".join(texts) == "a" * 50
    assert echoing.popen.wait(10) == 0


def test_a_second_signal_does_not_wait_for_streams(echoing: Process) -> None:
    echoing.wait_for(READY)
    with sdk_of(echoing) as sdk:
        stream = sdk.completions.create(model="tiny", prompt=[WAIT], stream=True)
        echoing.popen.send_signal(signal.SIGINT)
        echoing.wait_for("Draining")
        echoing.popen.send_signal(signal.SIGINT)
        started = time.monotonic()
        with pytest.raises(openai.APIError, match="closed"):
            list(stream)
        assert time.monotonic() - started < 5
    assert echoing.popen.wait(10) == 0
    assert "Traceback" not in echoing.log


RUDE = """
@hookimpl
def register_routes(register):
    register(__name__ + ":cancel")
    register(__name__ + ":leave")
    register(__name__ + ":stay")

import asyncio
from litestar import get

@get("/cancel")
async def cancel() -> None:
    for task in asyncio.all_tasks():
        task.cancel()

@get("/leave")
async def leave() -> None:
    async def ends():
        raise SystemExit(3)

    await asyncio.create_task(ends())

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@get("/stay")
async def stay() -> None:
    stay.task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
"""


@pytest.mark.long
def test_a_task_that_never_ends_is_left(
    model: Path, install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_plugin("rude", RUDE)))
    with running(sys.executable, serve_echo.__file__, str(model)) as process:
        process.wait_for(READY)
        assert httpx.get(process.url + "/stay").status_code == 200
        assert process.end(signal.SIGTERM, 30) == 0
    assert "code that it has cancelled still runs: stubborn (" in process.log


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "done"), [("/cancel", "cancelled its tasks"), ("/leave", "raised SystemExit(3)")]
)
def test_a_plugin_that_ends_the_server_is_named(
    path: str,
    done: str,
    model: Path,
    tmp_path: Path,
    install_plugin: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_plugin("rude", RUDE)))
    options = ("--crash-reports", str(tmp_path / "crashes"))
    with running(sys.executable, serve_echo.__file__, str(model), *options) as process:
        process.wait_for(READY)
        with contextlib.suppress(httpx.TransportError):
            httpx.get(process.url + path)
        assert process.popen.wait(20) == 1
    assert process.lines[-1].startswith(f"Error: the server ends, since code in this process {done}")
    assert "'rude' (foreign 1.2)" in process.lines[-1]
    [report] = (tmp_path / "crashes").iterdir()
    assert report.name.endswith("-server-failed")


def test_a_signal_just_before_ready_ends_cleanly(model: Path) -> None:
    code = """import os, runpy; from llmfw.api.app import serving as s; real = s.prepare_process
s.prepare_process = lambda *a, **k: (os.kill(os.getpid(), 15), real(*a, **k)); runpy.run_module('llmfw.api', run_name='__main__')"""
    options = (str(model), "--load-format=dummy", "--port=0")
    with running(sys.executable, "-c", code, "serve", *options) as process:
        assert process.popen.wait(60) == 0


def test_a_signal_during_model_loading_ends_cleanly(model: Path) -> None:
    with running(*LLMFW, str(model), "--load-format", "dummy", "--port", "0") as process:
        process.wait_for("Settings")
        time.sleep(0.5)
        assert process.end(signal.SIGINT) == 130
        assert "Stopped by SIGINT before the model was ready" in process.log
        assert "Traceback" not in process.log


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LLMFW, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_fails_before_loading(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(str(model), "--load-format", "dummy", "--port", str(port))
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "Settings: " not in line]
    assert str(port) in line
    assert "in use" in line


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--storage", "{taken}"], "'{taken}/files.db' cannot be used as storage"),
        (["-o", "file_store.color=red"], "file store 'memory' has no option 'color'"),
        (["-o", "policy.color=red"], "policy 'lpm' has no option 'color'; known: max_overtaken"),
        (["-o", "chat_template.color=red"], "chat template 'jinja' has no option 'color'"),
        (["-o", "tool_parser.color=red"], "--tool-parser NAME chooses one"),
    ],
)
def test_a_wrong_option_fails_before_loading(
    model: Path, tmp_path: Path, options: list[str], named: str
) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    given = [option.format(taken=taken) for option in options]
    done = run(str(model), "--load-format", "dummy", "--port", "0", *given)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "Settings: " not in line]
    assert named.format(taken=taken) in line


def test_a_wrong_key_file_fails_before_loading(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("ann=secret words\n")
    done = run(str(model), "--load-format", "dummy", "--port", "0", "--api-key-file", str(keys))
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "Settings: " not in line]
    assert f"line 1 of '{keys}'" in line
    assert "secret" not in line


@pytest.mark.long
def test_an_unsupported_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**MODEL, "model_type": "unheard_of"}))
    done = run(str(tmp_path), "--load-format", "dummy", "--port", "0")
    assert done.returncode == 1
    assert "unheard_of" in done.stderr
    assert "Traceback" not in done.stderr
