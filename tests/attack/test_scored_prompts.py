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


LONG = [5] * 1900
NAMED = list(range(128))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": LONG, "max_tokens": 1, "n": 128, "prompt_logprobs": 20}),
        ("/v1/completions", {"prompt": [LONG] * 4, "max_tokens": 0, "n": 128, "echo": True, "logprobs": 20}),
        (
            "/generate",
            {
                "input_ids": LONG,
                "sampling_params": {"max_new_tokens": 1, "n": 128},
                "top_logprobs_num": 20,
                **SCORED,
            },
        ),
    ],
)
def test_copies_of_scored_prompts_are_limited(
    server: ServerProcess, http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    """Before, such a request had a reply of 358 MB to 1.4 GB, and another client waited 1.3 to 8.5 s."""
    with unhurt(server):
        reply = http.post(path, json=body)
        assert reply.status_code == 400
        assert "in one reply" in reply.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": LONG, "max_tokens": 1, "n": 16, "prompt_logprobs": 20}),
        (
            "/v1/completions",
            {"prompt": "a", "max_tokens": 100, "n": 32, "logprobs": 0, "logprob_token_ids": NAMED},
        ),
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "a"}],
                "max_tokens": 100,
                "n": 32,
                "logprobs": True,
                "top_logprobs": 20,
            },
        ),
    ],
)
def test_large_replies_delay_no_other_client(
    server: ServerProcess, http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    with unhurt(server):
        assert http.post(path, json=body).status_code == 200


def test_streamed_scores_are_not_repeated_without_end(server: ServerProcess, http: httpx.Client) -> None:
    """Before, this reply had 6.85 GB, because each event has all tokens so far."""
    sampling = {"max_new_tokens": 1900, "ignore_eos": True}
    body = {
        "text": "a",
        "sampling_params": sampling,
        "return_logprob": True,
        "token_ids_logprob": NAMED,
        "stream": True,
    }
    size = 0
    with unhurt(server), http.stream("POST", "/generate", json=body) as reply:
        for piece in reply.iter_bytes():
            size += len(piece)
    assert size < 400 * 2**20
