"""Real engines are killed under streams of all kinds: each has the text, the log probabilities and the usage that it has
without a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..length import of_length
from .server import SERVE, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.long]

NUM_KILLS = of_length(4, 10)
PATIENCE_S = 90.0
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 60}, "days": {"type": "integer"}},
    "required": ["place", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
SCHEMA = {
    "type": "object",
    "properties": {
        "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 10, "maxItems": 20}
    },
    "required": ["numbers"],
    "additionalProperties": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.4, "min_tokens": 60},
    "logprobs": {"logprobs": True, "top_logprobs": 3, "min_tokens": 40},
    "choices": {"n": 4, "min_tokens": 40},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
    "tool": {"tools": [TOOL], "tool_choice": "required"},
    "stop": {"stop": [" the"], "min_tokens": 20},
}


def body(kind: str, seed: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Tell me something long about the number {seed}."}]
    shared = {"model": "demo", "messages": messages, "max_tokens": 150, "seed": seed, "stream": True}
    return shared | {"stream_options": {"include_usage": True}} | KINDS[kind]


def read(http: httpx.Client, asked: dict[str, Any]) -> Any:
    """Return all that a stream says, by choice, and its usage."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    with http.stream("POST", "/v1/chat/completions", json=asked) as reply:
        assert reply.is_success, reply.read()
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                found = choices.setdefault(
                    choice["index"], {"text": "", "calls": "", "end": None, "logprobs": []}
                )
                delta = choice["delta"]
                found["text"] += delta.get("content") or ""
                found["calls"] += "".join(
                    (call["function"].get("name") or "") + (call["function"].get("arguments") or "")
                    for call in delta.get("tool_calls") or ()
                )
                found["end"] = choice["finish_reason"] or found["end"]
                for record in (choice.get("logprobs") or {}).get("content") or ():
                    found["logprobs"].append((record["token"], round(record["logprob"], 2)))
    assert usage is not None
    return choices, usage["prompt_tokens"], usage["completion_tokens"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    # With `prefix`, requests would gather at one engine, and most kills would hit the other one.
    options = (
        "--replicas",
        "2",
        "--router",
        "load",
        "--max-total-tokens",
        "6000",
        "--max-restarts-per-hour",
        "1000",
    )
    with ServerProcess(tmp_path, *options, command=SERVE) as server:
        yield server


def engines(server: ServerProcess) -> list[int]:
    """The engine processes, without those that compile grammars."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in server.engine_pids}
    return [pid for pid, line in lines.items() if "core.engine.process" in line]


def wait_ready(http: httpx.Client, engines: str) -> None:
    """Wait until so many engines are ready; ask seldom, as the engines need the processor."""
    for _ in range(int(PATIENCE_S / 0.2)):
        if http.get("/health/ready").json().get("engines") == engines:
            return
        time.sleep(0.2)
    raise TimeoutError(f"{engines} engines were not ready in time")


def test_kills_change_no_stream(server: ServerProcess) -> None:
    rng = random.Random(0)
    asked = {(kind, seed): body(kind, seed) for kind in KINDS for seed in range(2)}
    found: list[str] = []
    num_read = [0]
    is_over = threading.Event()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_S) as http:
        wait_ready(http, "2 of 2")
        alone = {key: read(http, each) for key, each in asked.items()}

        def client(number: int) -> None:
            own = random.Random(number)
            while not is_over.is_set():
                key = own.choice(list(asked))
                try:
                    if (got := read(http, asked[key])) != alone[key]:
                        found.append(f"{key} gave {got}, and alone {alone[key]}")
                except (AssertionError, httpx.HTTPError) as error:
                    found.append(f"{key}: {error!r}")
                num_read[0] += 1

        clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for each in clients:
            each.start()
        try:
            for _ in range(NUM_KILLS):
                wait_ready(http, "2 of 2")
                time.sleep(0.3 + rng.random())
                os.kill(rng.choice(engines(server)), signal.SIGKILL)
                wait_ready(http, "1 of 2")
        finally:
            is_over.set()
            for each in clients:
                each.join(PATIENCE_S)
        metrics = http.get("/metrics").text
    assert found == []
    assert num_read[0] > 5 * NUM_KILLS
    continued = float(metrics.split("\nllmfw_requests_continued_total ")[1].split()[0])
    assert continued >= NUM_KILLS


def test_one_restarted_engine_continues_its_streams(tmp_path: Path) -> None:
    """Also those whose seed was drawn: their text is the one that they would have had."""
    with ServerProcess(tmp_path, "--max-total-tokens", "4000", "--random-seed", "7", command=SERVE) as server:
        asked = body("plain", 0) | {"min_tokens": 150}
        del asked["seed"]
        with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_S) as http:
            whole = read(http, asked)
            server.kill()
            server.start()
            with http.stream("POST", "/v1/chat/completions", json=asked) as reply:
                lines = reply.iter_lines()
                begun = [next(lines) for _ in range(20)]
                os.kill(engines(server)[0], signal.SIGKILL)
                rest = list(lines)
    events = [json.loads(line[6:]) for line in (*begun, *rest) if line.startswith("data: {")]
    text = "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])
    assert text == whole[0][0]["text"]
