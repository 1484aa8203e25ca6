"""Real engines with adapters: each answers alike, finds prefixes again, and has them after a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.tiny_adapters import save_random_adapter
from .server import SERVE, ServerProcess
from .test_migration import PATIENCE_S, engines, wait_ready

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_all_engines_serve_a_loaded_adapter(tmp_path: Path) -> None:
    demo = Path(resolve_model("demo", load_plugins().registry).path)
    adapter = save_random_adapter(tmp_path / "adapter", demo)
    options = ("--replicas", "2", "--max-adapters", "2", "--max-total-tokens", "4000")
    with (
        ServerProcess(tmp_path / "server", *options, command=SERVE) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_S) as http,
    ):
        wait_ready(http, "2 of 2")

        def ask(model: str, text: str) -> Any:
            messages = [{"role": "user", "content": text * 20}]
            asked = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 20}
            return http.post("/v1/chat/completions", json=asked).raise_for_status().json()

        def text_of(reply: Any) -> Any:
            return reply["choices"][0]["message"]["content"]

        loaded = http.post("/admin/adapters", json={"name": "a", "path": str(adapter)})
        assert loaded.json()["state"] == "ready"
        wrong = http.post("/admin/adapters", json={"name": "b", "path": str(tmp_path)})
        assert wrong.status_code == 400
        answers = [ask("a", f"What is {i}? ") for i in range(4)]
        again = [ask("a", f"What is {i}? ") for i in range(4)]
        assert list(map(text_of, again)) == list(map(text_of, answers))
        shares = [
            each["usage"]["prompt_tokens_details"]["cached_tokens"] / each["usage"]["prompt_tokens"]
            for each in again
        ]
        assert min(shares) > 0.9  # the router knows which engine has a prefix of an adapter
        assert text_of(ask("demo", "What is 0? ")) != text_of(answers[0])
        for pid in engines(server):
            wait_ready(http, "2 of 2")
            os.kill(pid, signal.SIGKILL)
            wait_ready(http, "1 of 2")
            assert text_of(ask("a", "What is 1? ")) == text_of(answers[1])
        wait_ready(http, "2 of 2")
        assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["demo", "a"]
        assert http.delete("/admin/adapters/a").json()["adapters"][-1]["state"] == "failed"  # b
        assert http.post("/v1/completions", json={"model": "a", "prompt": "x"}).status_code == 404
