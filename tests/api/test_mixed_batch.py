"""Requests of all kinds, sent at once, are each answered as if alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ..doubles.serving import Served
from .wire_calls import PERSON, WEATHER, chat, completion

THINKS = {"enable_thinking": True}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
KINDS: list[dict[str, Any]] = [
    chat(),
    chat(temperature=0),
    chat(n=4, temperature=1.2),
    chat(response_format=SCHEMA),
    chat(response_format={"type": "json_object"}, temperature=1.5),
    chat(response_format=SCHEMA, chat_template_kwargs=THINKS, n=2),
    chat(tools=[WEATHER]),
    chat(tools=[WEATHER], tool_choice="required", n=4),
    chat(presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.2),
    chat(logprobs=True, top_logprobs=4),
    chat(logprobs=True, response_format=SCHEMA),
    chat(top_k=5, top_p=0.8, min_p=0.05, temperature=1.3),
    chat(regex="(yes|no), (yes|no)"),
    chat(chat_template_kwargs=THINKS, thinking_budget=5),
    completion(echo=True, logprobs=2),
    completion(n=4, best_of=4, logit_bias={"300": 5}, min_tokens=4),
]
# Not 2: there a draw falls 6e-7 beside the border of two tokens, nearer than float32's sums over batches of other sizes.
BODIES = [{**body, "seed": seed} for seed in (1, 3) for body in KINDS]


def ask(url: str, body: dict[str, Any]) -> Any:
    """Return the choices of the answer."""
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    reply = httpx.post(url + path, json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return comparable(reply.json()["choices"])


def comparable(value: Any) -> Any:
    """Return a value without ids, and with log probabilities rounded: a batch's size may change their last bits."""
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items() if key != "id"}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.mark.long
def test_a_mixed_batch_equals_single_requests(demo_server: Served) -> None:
    alone = [ask(demo_server.url, body) for body in BODIES]
    with ThreadPoolExecutor(len(BODIES)) as pool:
        together = list(pool.map(lambda body: ask(demo_server.url, body), BODIES))
    assert len(BODIES) == 32
    for body, one, other in zip(BODIES, alone, together, strict=True):
        assert one == other, body
