"""The route and the command, with a server."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time

import httpx
import pytest

LLMFW = [sys.executable, "-m", "llmfw.api"]


def answers(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health").is_success


@pytest.fixture(scope="module")
def url():
    """The URL of a server of the demo model, which asks for the key "secret"."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([*LLMFW, "serve", "--port", str(port), "--api-key", "secret"], env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 300
        while not answers(url):
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def run(*arguments):
    return subprocess.run([*LLMFW, *arguments], capture_output=True, text=True, check=False)


def test_the_served_route_requires_the_key(url):
    assert httpx.get(f"{url}/load").status_code == 401
    key = {"authorization": "Bearer secret"}
    body = {"model": "demo", "prompt": "a", "max_tokens": 5, "ignore_eos": True}
    before = httpx.get(f"{url}/load", headers=key).json()
    assert httpx.post(f"{url}/v1/completions", json=body, headers=key, timeout=60).is_success
    after = httpx.get(f"{url}/load", headers=key).json()
    assert after["generated_tokens"] == before["generated_tokens"] + 5
    assert (after["running"], after["waiting"]) == (0, 0)


def test_the_command_prints_the_reply(url):
    done = run("load", "--url", f"{url}/v1", "--api-key", "secret")
    assert re.fullmatch(
        r"running 0, waiting 0, batch lines 0 \+ 0 waiting, KV storage \d+ % in use\n", done.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--api-key", "wrong"], "401 from"), (["--url", "http://127.0.0.1:9"], "no server answers at")],
)
def test_errors_are_one_line(url, arguments, message):
    done = run("load", "--url", url, *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_is_listed():
    assert "Show how busy a server is" in run("--help").stdout
