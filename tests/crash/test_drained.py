"""A draining server takes nothing new, finishes what runs, and hands the rest to the next one."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from .server import ServerProcess, echo_server, wait_until

pytestmark = pytest.mark.slow

TEXT = "a" * 150  # takes the echo engine a second and a half
ENDPOINT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with echo_server(tmp_path_factory.mktemp("server"), "--drain-timeout", "20") as server:
        yield server


@pytest.fixture
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    if server.has_ended:
        server.start()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        yield sdk


def stream_of(sdk: openai.OpenAI) -> Any:
    """Return a chat's stream of which the first event has come."""
    stream = sdk.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": TEXT}], stream=True
    )
    next(iter(stream))
    return stream


def status(server: ServerProcess, path: str) -> int:
    return httpx.get(server.url + path).status_code


def is_draining(server: ServerProcess) -> bool:
    return status(server, "/health/ready") == 503


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_a_stream_ends_whole_while_others_are_refused(server: ServerProcess, sdk: openai.OpenAI) -> None:
    stream = stream_of(sdk)
    server.signal(signal.SIGTERM)
    wait_until(lambda: is_draining(server), 5, "the drain")
    assert status(server, "/health/live") == 200
    with pytest.raises(openai.InternalServerError) as caught:
        stream_of(sdk)
    assert (caught.value.status_code, caught.value.code) == (503, "draining")
    assert len(text_of(stream)) >= len(TEXT) - 1
    assert server.wait_ended() == 0


@pytest.mark.long  # tests/api/test_draining.py holds it in this process, and so tests/api/lifecycle/test_drain.py the next ones
def test_an_administrator_drains_without_a_signal(server: ServerProcess, sdk: openai.OpenAI) -> None:
    stream = stream_of(sdk)
    reply = httpx.post(f"{server.url}/admin/drain").json()
    assert reply == {"status": "draining", "num_open": 1, "timeout_s": 20.0}
    assert len(text_of(stream)) >= len(TEXT) - 1
    assert server.wait_ended() == 0


@pytest.mark.long
def test_a_background_response_ends_before_the_server(server: ServerProcess, sdk: openai.OpenAI) -> None:
    response = sdk.responses.create(model="echo", input=TEXT, background=True)
    assert server.stop() == 0
    server.start()
    found = sdk.responses.retrieve(response.id)
    assert (found.status, found.output_text) == ("completed", TEXT)


@pytest.mark.long  # tests/api/batches/test_restarts.py holds it for jobs and stores
def test_a_batch_goes_on_after_the_restart(server: ServerProcess, sdk: openai.OpenAI) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": TEXT}]}
    lines = [
        json.dumps({"custom_id": f"{i}", "method": "POST", "url": ENDPOINT, "body": body}) for i in range(200)
    ]
    file = sdk.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = sdk.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    wait_until(lambda: sdk.batches.retrieve(batch.id).status == "in_progress", 10, "the batch's start")
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 10  # it does not wait for the batch
    server.start()
    assert sdk.batches.retrieve(batch.id).status in ("in_progress", "finalizing", "completed")
    wait_until(lambda: sdk.batches.retrieve(batch.id).status == "completed", 60, "the batch")
    output = sdk.batches.retrieve(batch.id).output_file_id
    assert output is not None
    ids = [json.loads(line)["custom_id"] for line in sdk.files.content(output).text.splitlines()]
    assert sorted(ids, key=int) == [str(i) for i in range(200)]


@pytest.mark.long
def test_what_runs_too_long_is_ended(tmp_path: Path) -> None:
    with echo_server(tmp_path, "--drain-timeout", "0.2") as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
            response = sdk.responses.create(model="echo", input=TEXT, background=True)
            stream = stream_of(sdk)
            server.signal(signal.SIGTERM)
            with pytest.raises(openai.APIError, match="closed"):
                text_of(stream)
            assert server.wait_ended() == 0
            assert "1 requests still run and are ended" in server.log.read_text()
            server.start()
            failed = sdk.responses.retrieve(response.id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert "the server ended" in failed.error.message
