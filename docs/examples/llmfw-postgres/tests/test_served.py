"""A batch is run by servers whose files and jobs are in PostgreSQL, by the OpenAI SDK."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import openai
from llmfw_postgres.conformance import schema_of

NUM_LINES = 100
"""With two at once, seconds of work for any machine: enough for one server to be ended amid them."""


@contextlib.contextmanager
def serving(url, schema, log):
    """Give a client of a server, and the process that is one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "llmfw.api", "serve", "--port", str(port), "--max-running-requests", "2"]
    for kind in ("file", "batch"):
        command += [f"--{kind}-store", "postgres"]
        command += ["-o", f"{kind}_store.url={url}", "-o", f"{kind}_store.schema={schema}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with open(log, "ab") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(base) or server.poll() is not None)
        assert server.poll() is None, log.read_text()
        with openai.OpenAI(base_url=f"{base}/v1", api_key="none") as client:
            yield client, server
    finally:
        server.terminate()
        server.wait(30)


def answers(base):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{base}/health").is_success


def wait_until(condition, seconds=300):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def line(number):
    body = {"model": "demo", "prompt": f"Line {number}: once upon a time", "temperature": 0}
    body |= {"max_tokens": 64, "ignore_eos": True}
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/completions", "body": body}


def test_a_restarted_server_finishes_the_batch(url, tmp_path):
    log, schema = tmp_path / "log", schema_of(tmp_path)
    data = "\n".join(json.dumps(line(number)) for number in range(NUM_LINES)).encode()
    with serving(url, schema, log) as (client, server):
        file = client.files.create(file=("lines.jsonl", data), purpose="batch")
        made = client.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        )
        wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed)
        server.send_signal(signal.SIGTERM)
        server.wait(30)

    with serving(url, schema, log) as (client, _):
        wait_until(lambda: client.batches.retrieve(made.id).status == "completed")
        batch = client.batches.retrieve(made.id)
        found = [json.loads(text) for text in client.files.content(batch.output_file_id).text.splitlines()]
        assert batch.request_counts.completed == batch.request_counts.total == NUM_LINES
        assert sorted(each["custom_id"] for each in found) == sorted(f"line-{n}" for n in range(NUM_LINES))
        assert all(each["response"]["body"]["choices"][0]["text"] for each in found)
        assert [each.id for each in client.files.list(purpose="batch")] == [file.id]
        assert client.files.content(file.id).content == data
    [taken_up] = [each for each in log.read_text().splitlines() if f"{made.id} is taken up" in each]
    assert "in_progress" in taken_up
    assert "Files are kept by 'postgres', batches by 'postgres', responses by 'memory'" in log.read_text()
