"""Random requests of many kinds, as the events that an observer receives."""

from __future__ import annotations

import random
from collections.abc import Sequence

from llmfw.core.interfaces.observer import RequestEnded, RequestEvent, RequestFirstToken, RequestStarted

FINISHES = ("stop", "length", "abort", "error")
ERROR_KINDS = ("EngineError", "OverloadedError", "RequestError", "DeadlineError")
TRACE_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def varied_requests(num: int, seed: int) -> list[RequestEvent]:
    """Return the mixed events of `num` random requests. Each request's events are in order.

    They differ in each attribute. Some are refused, some restart, and some generate a single token.
    Embeddings have no first token.
    """
    rng = random.Random(f"varied {seed}")
    return mixed([_request(rng, f"{seed}-{i}") for i in range(num)], rng)


def mixed(requests: Sequence[Sequence[RequestEvent]], rng: random.Random) -> list[RequestEvent]:
    """Return the events of all requests in a random order that keeps the order of each request."""
    waiting = [list(events) for events in requests if events]
    found = []
    while waiting:
        events = rng.choice(waiting)
        found.append(events.pop(0))
        if not events:
            waiting.remove(events)
    return found


def _request(rng: random.Random, name: str) -> list[RequestEvent]:
    task = rng.choice(["generate", "generate", "generate", "embed"])
    started = _start(rng, name, task)
    finish = rng.choice([each for each in FINISHES if task == "generate" or each != "length"])
    has_token = task == "generate" and (finish in ("stop", "length") or rng.random() < 0.5)
    queued_s, prefill_s, decode_s = (2 * rng.random() for _ in range(3))
    first = RequestFirstToken(
        id=started.id,
        at=started.at + queued_s + prefill_s,
        queued_s=queued_s,
        cached_tokens=rng.randrange(started.prompt_tokens),
        started=started,
        first_token_s=queued_s + prefill_s,
    )
    restarts = rng.choice([0, 0, 1, 2]) if has_token else 0
    end = RequestEnded(
        started=started,
        at=started.at + queued_s + prefill_s + decode_s,
        finish=finish,
        error_kind=rng.choice(ERROR_KINDS) if finish == "error" else "",
        error="it failed" if finish == "error" else "",
        output_tokens=rng.choice([1, 2, 3, 70]) if has_token else 0,
        cached_tokens=first.cached_tokens if has_token else 0,
        queued_s=queued_s if has_token else 0.0,
        first_token_s=first.first_token_s if has_token else None,
        duration_s=queued_s + prefill_s + decode_s,
        restarts=restarts,
    )
    return [started, *[first] * (has_token + min(restarts, 1)), end]


def _start(rng: random.Random, name: str, task: str) -> RequestStarted:
    tenant = rng.choice(["", "alice", "bob", "carol"])
    return RequestStarted(
        id=rng.choice(["chatcmpl-", "cmpl-"]) + name,
        at=1_800_000_000.0 + 100 * rng.random(),
        task=task,
        tenant=tenant,
        tenant_is_key=bool(tenant) and rng.random() < 0.7,
        priority=rng.choice([0, 5]),
        deferrable=rng.random() < 0.3,
        prompt_tokens=rng.choice([1, 2, 12, 3_000]),
        max_tokens=rng.choice([None, 16]) if task == "generate" else None,
        model=rng.choice(["", "m", "n"]),
        traceparent=rng.choice(["", TRACE_PARENT]),
        adapter=rng.choice(["", "", "sql", "tone", "base:x"]) if task == "generate" else "",
    )
