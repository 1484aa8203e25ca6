"""The log of a server as JSON in a file: one object a line, from both processes, before and after log rotation."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx

from ..crash.server import ServerProcess, echo_server, wait_until

PROMPT = "a secret prompt"
MEMBERS = ("method", "path", "status", "tenant", "logger", "trace_id")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def ask(server: ServerProcess, request_id: str) -> None:
    body = {"model": "echo", "prompt": PROMPT}
    headers = {
        "x-request-id": request_id,
        "authorization": "Bearer key-of-alice-0123456789abcdef",
        "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
    }
    httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=60).raise_for_status()


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rotation_loses_no_line(tmp_path: Path) -> None:
    log, moved = tmp_path / "server.log", tmp_path / "server.log.1"
    options = ("--log-format", "json", "--log-file", str(log))
    keys = ("--api-key", "alice=key-of-alice-0123456789abcdef")
    with echo_server(tmp_path / "served", *options, *keys) as server:
        ask(server, "first")
        log.rename(moved)
        server.signal_api(signal.SIGHUP)
        wait_until(log.exists, 30, "a new log file")
        ask(server, "second")
        server.stop()
    before, after = objects(moved), objects(log)
    assert any("SIGHUP" in each["message"] for each in after)
    for lines, request_id in ((before, "first"), (after, "second")):
        [access] = [each for each in lines if each.get("request_id") == request_id]
        members = {name: access[name] for name in MEMBERS}
        assert members == {
            "method": "POST",
            "path": "/v1/completions",
            "status": 200,
            "tenant": "alice",
            "logger": "llmfw.access",
            "trace_id": TRACE,
        }
    assert all({"time", "level", "logger", "pid", "message"} <= each.keys() for each in before + after)
    text = moved.read_text() + log.read_text()
    assert PROMPT not in text
    assert "0123456789abcdef" not in text
