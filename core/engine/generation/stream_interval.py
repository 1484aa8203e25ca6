"""Joins the events of several steps into one, so that several tokens share the cost of sending an event to the
client.

A request's first event, its last event and reports of its place in the queue are never held back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from llmfw.core.base.request import EmbedRequest, Request, TokenEvent


class StreamInterval:
    """Holds the events of running requests until they have enough tokens.

    Args:
        num_tokens: number of tokens from which an event is sent, unless the request sets its own; 1: hold
            nothing back.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._asked: dict[str, int] = {}  # intervals that requests set themselves
        self._held: dict[str, TokenEvent | None] = {}  # held event of each request whose first event was sent

    def begin(self, request: Request | EmbedRequest) -> None:
        """Record the request's own interval, if it sets one."""
        if isinstance(request, Request) and request.stream_interval is not None:
            self._asked[request.id] = request.stream_interval

    def pass_on(self, events: list[TokenEvent]) -> list[TokenEvent]:
        """Take a step's events; return the events to send now."""
        if self._num_tokens == 1 and not self._asked:
            return events
        return [ready for event in events if (ready := self._take(event)) is not None]

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop held events of aborted requests."""
        for request_id in request_ids:
            self._held.pop(request_id, None)
            self._asked.pop(request_id, None)

    def _take(self, event: TokenEvent) -> TokenEvent | None:
        if event.wait is not None:
            return event
        is_first = event.id not in self._held
        if (held := self._held.pop(event.id, None)) is not None:
            event = _joined(held, event)
        if event.finish_reason is not None:
            self._asked.pop(event.id, None)
            return event
        waits = not is_first and len(event.token_ids) < self._asked.get(event.id, self._num_tokens)
        self._held[event.id] = event if waits else None
        return None if waits else event


def _joined(first: TokenEvent, second: TokenEvent) -> TokenEvent:
    """Join two consecutive events of a request."""
    return msgspec.structs.replace(
        second,
        token_ids=first.token_ids + second.token_ids,
        cached_tokens=first.cached_tokens or second.cached_tokens,
        queued_us=first.queued_us or second.queued_us,
        logprobs=None if first.logprobs is None else first.logprobs + (second.logprobs or []),
        prompt_logprobs=first.prompt_logprobs,
    )
