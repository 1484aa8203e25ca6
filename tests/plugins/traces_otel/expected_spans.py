"""The spans of `otel`, computed in the plainest way from a list of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from llmfw.core import RequestEnded, RequestEvent


def expected_spans(events: Sequence[RequestEvent]) -> list[dict[str, Any]]:
    """Return the spans in the order in which they end, those of a request's phases before its own."""
    ends = (event for event in events if isinstance(event, RequestEnded))
    return [span for end in ends for span in (*_phases(end), _request(end))]


def _request(end: RequestEnded) -> dict[str, Any]:
    started = end.started
    parent = started.traceparent.split("-")[2] if started.traceparent else None
    attributes = {
        "gen_ai.operation.name": _operation(end),
        "gen_ai.provider.name": "llmfw",
        "gen_ai.request.model": started.model,
        "gen_ai.request.max_tokens": started.max_tokens,
        "gen_ai.response.id": started.id,
        "gen_ai.response.finish_reasons": (end.finish,),
        "gen_ai.response.time_to_first_chunk": end.first_token_s,
        "gen_ai.usage.input_tokens": started.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": end.cached_tokens,
        "gen_ai.usage.output_tokens": end.output_tokens,
        "llmfw.class": "deferrable" if started.deferrable else "live",
        "llmfw.restarts": end.restarts,
        "llmfw.tenant": started.tenant if started.tenant_is_key else None,
        "error.type": end.error_kind or None,
    }
    return {
        "name": f"{_operation(end)} {started.model}".strip(),
        "kind": "SERVER",
        "parent": parent,
        "times": _times(started.at, started.at + end.duration_s),
        "status": ("ERROR", end.error_kind) if end.finish == "error" else ("UNSET", None),
        "attributes": {name: value for name, value in attributes.items() if value is not None},
    }


def _phases(end: RequestEnded) -> Iterator[dict[str, Any]]:
    if end.first_token_s is None:
        return
    at = end.started.at
    borders = [at, at + end.queued_s, at + end.first_token_s, at + end.duration_s]
    for name, *times in zip(("queue", "prefill", "decode"), borders, borders[1:], strict=False):
        yield {
            "name": name,
            "kind": "INTERNAL",
            "parent": end.started.id,
            "times": _times(*times),
            "status": ("UNSET", None),
            "attributes": {},
        }


def _operation(end: RequestEnded) -> str:
    if end.started.task == "embed":
        return "embeddings"
    return {"chatcmpl": "chat", "cmpl": "text_completion"}[end.started.id.partition("-")[0]]


def _times(*seconds: float) -> Any:
    """Return times in nanoseconds; a float of today's time is exact to a fraction of a microsecond."""
    return pytest.approx(tuple(1e9 * each for each in seconds), abs=1_000, rel=0)
