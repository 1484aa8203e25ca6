"""An engine that has more to do than it can is not taken for one that hangs.

`make saturate` runs it for an hour; here for a few seconds, with a watchdog that is thirty times as strict.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from .server import ServerProcess

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("LLMFW_SATURATION_S", "5"))
WATCHDOG_S = os.environ.get("LLMFW_SATURATION_WATCHDOG_S", "10")
PROMPT_TOKENS = 8000
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 16384,
}


def ask(url: str, draw: random.Random, answered: list[int]) -> None:
    """Send long prompts, none of which is cached, until the server ends."""
    with httpx.Client(trust_env=False, timeout=600) as http, contextlib.suppress(httpx.TransportError):
        while True:
            prompt = [draw.randrange(1000) for _ in range(PROMPT_TOKENS)]
            body = {"prompt": prompt, "max_tokens": 32, "ignore_eos": True}
            answered.append(http.post(f"{url}/v1/completions", json=body).status_code)


def test_saturation_raises_no_false_alarm(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))
    options = ("--load-format", "dummy", "--watchdog-timeout", WATCHDOG_S, "--max-total-tokens", "60000")
    answered: list[int] = []
    with ServerProcess(tmp_path, "--model", str(model), *options) as server:
        clients = [
            threading.Thread(target=ask, args=(server.url, random.Random(i), answered)) for i in range(16)
        ]
        for client in clients:
            client.start()
        time.sleep(SECONDS)
        assert httpx.get(f"{server.url}/health", timeout=30).is_success
        figures = httpx.get(f"{server.url}/metrics", timeout=60).text
    for client in clients:
        client.join(60)
    print(f"{len(answered)} prompts of {PROMPT_TOKENS} tokens in {SECONDS:g} s")
    assert "llmfw_engine_restarts_total 0" in figures
    assert "hangs" not in server.log.read_text()
    assert set(answered) <= {200}
