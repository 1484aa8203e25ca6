"""A batch line that ends the server is tried twice. Before, each start ended at it within a second, for ever."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import httpx
import openai
import pytest

from .ledger import ENDED, Ledger, leftovers, lines_of
from .server import SERVE_POISON, ServerProcess, echo_server

pytestmark = pytest.mark.slow

ENDPOINT = "/v1/chat/completions"


def submit(server: ServerProcess, ledger: Ledger, texts: list[str]) -> str:
    """Submit a batch with a chat for each text, and return its id."""
    lines = [
        {"custom_id": str(i), "method": "POST", "url": ENDPOINT, "body": {"messages": [message]}}
        for i, message in enumerate({"role": "user", "content": text} for text in texts)
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        file = sdk.files.create(file=content, purpose="batch")
        ledger.files[file.id] = content
        batch = sdk.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    ledger.batches.add(batch.id)
    return batch.id


def follow(server: ServerProcess, ids: list[str]) -> bool:
    """Wait until batches have ended; return False if the server ended before."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http:
        while not server.has_ended:
            with contextlib.suppress(httpx.TransportError):
                if all(http.get(f"/v1/batches/{id}").json()["status"] in ENDED for id in ids):
                    return True
            time.sleep(0.05)
    return False


@pytest.mark.long  # tests/api/batches/test_poison.py holds the same without processes
def test_a_line_killing_the_server_runs_twice(tmp_path: Path) -> None:
    ledger, num_deaths = Ledger(), 0
    with echo_server(tmp_path, command=SERVE_POISON) as server:
        innocent = [f"hello {i}" for i in range(30)]
        ids = [submit(server, ledger, innocent)]
        with contextlib.suppress(openai.APIConnectionError):
            ids.append(submit(server, ledger, [*innocent[:7], "poison", *innocent[8:]]))
        while not follow(server, ids):
            num_deaths += 1
            assert num_deaths <= 2
            server.kill()  # the engine's process may be left
            with contextlib.suppress(RuntimeError):  # it may die of the line before it is seen to be healthy
                server.start()
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
            assert ledger.complaints(http) == []
            poisoned = http.get(f"/v1/batches/{ids[1]}").json()
            assert poisoned["request_counts"] == {"total": 30, "completed": 29, "failed": 1}
            [line] = lines_of(http, poisoned["error_file_id"])
            assert (line["custom_id"], line["error"]["code"]) == ("7", "line_crashed_server")
        assert server.stop() == 0
        assert leftovers(server.storage, server.tmp) == []
    assert num_deaths == 2
