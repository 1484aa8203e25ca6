"""A server whose engine sleeps gives its memory back, refuses generation, and answers as before once it is woken."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import openai
import pytest

from ..length import also
from .server import ServerProcess, echo_server

pytestmark = pytest.mark.slow


def resident_bytes(pids: list[int]) -> int:
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids)


@pytest.mark.parametrize("model", ["echo", *also(["demo"])])
def test_sleep_releases_memory_and_keeps_answers(tmp_path: Path, model: str) -> None:
    demo = ("--model", "demo", "--max-total-tokens", "4096")
    with (
        ServerProcess(tmp_path, *demo) if model == "demo" else echo_server(tmp_path) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):

        def answer(seed: int) -> str:
            message = {"role": "user", "content": "What is the capital of France?"}
            options = {"temperature": 1.0, "seed": seed, "max_tokens": 20}
            chat = sdk.chat.completions.create(model=model, messages=[message], **options)  # type: ignore
            return str(chat.choices[0].message.content)

        before = [answer(seed) for seed in (1, 2)]
        resident = resident_bytes(server.engine_pids)
        reply = http.post("/admin/sleep").json()
        assert reply["status"] == "asleep"
        assert 0.8 * resident < reply["host_bytes"] < 1.25 * resident
        assert server.engine_pids == []
        with pytest.raises(openai.InternalServerError) as caught:
            answer(1)
        assert (caught.value.status_code, caught.value.code) == (503, "asleep")
        ready = http.get("/health/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "asleep")
        for path in ("/health", "/health/live", "/metrics", "/v1/models"):
            assert http.get(path).status_code == 200
        assert http.get("/health_generate").status_code == 503
        started = time.monotonic()
        assert http.post("/admin/wake").json()["status"] == "awake"
        assert time.monotonic() - started < 60
        assert http.get("/health/ready").status_code == 200
        assert [answer(seed) for seed in (1, 2)] == before
        assert http.post("/admin/sleep", json={"timeout_s": -1}).status_code == 400
        http.post("/admin/sleep")
        assert server.stop() == 0
