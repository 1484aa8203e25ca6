"""Prompts whose log probabilities are requested, on one connection.

Before, each filled steps of its own: with 20 prompts of 500 tokens at a time, a second client's small requests took 1442 to
2215 ms at the 99th percentile (echo: 1913 to 1952), and on the same busy machine 265 to 353 ms since, without attack 104 to 387.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from ..crash.server import ServerProcess
from .harness import unhurt

ATTACK_S = 5.0
PROMPTS = [[5] * 500] * 20
SCORED = {"return_logprob": True, "logprob_start_len": 0}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/generate",
            {
                "input_ids": PROMPTS,
                "sampling_params": {"max_new_tokens": 1},
                "top_logprobs_num": 20,
                **SCORED,
            },
        ),
        ("/generate", {"input_ids": PROMPTS, "sampling_params": {"max_new_tokens": 1}, **SCORED}),
        ("/v1/completions", {"prompt": PROMPTS, "max_tokens": 0, "echo": True, "logprobs": 20}),
    ],
)
def test_scored_prompts_delay_no_other_client(
    server: ServerProcess, http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    with unhurt(server):
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            assert http.post(path, json=body).status_code == 200
