"""Joins the events of several steps, so that what a token costs on its way to the client is paid for several at once.

A request's first event and its last one are never held back, nor what tells it to wait.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from llmfw.core.base.request import EmbedRequest, Request, TokenEvent


class StreamInterval:
    """Holds the events of running requests until they have enough tokens.

    Args:
        num_tokens: an event is passed on once it has so many, unless its request says otherwise; 1 holds nothing back.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._asked: dict[str, int] = {}  # of requests that say themselves how many tokens they want
        self._held: dict[str, TokenEvent | None] = {}  # of each request that has had its first event

    def begin(self, request: Request | EmbedRequest) -> None:
        """Take note of what a request asks for."""
        if isinstance(request, Request) and request.stream_interval is not None:
            self._asked[request.id] = request.stream_interval

    def pass_on(self, events: list[TokenEvent]) -> list[TokenEvent]:
        """Take a step's events; return those that are to be sent now."""
        if self._num_tokens == 1 and not self._asked:
            return events
        return [ready for event in events if (ready := self._take(event)) is not None]

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what is held of requests that were aborted."""
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
    """Return one event for two of the same request, one after the other."""
    return msgspec.structs.replace(
        second,
        token_ids=first.token_ids + second.token_ids,
        cached_tokens=first.cached_tokens or second.cached_tokens,
        logprobs=None if first.logprobs is None else first.logprobs + (second.logprobs or []),
        prompt_logprobs=first.prompt_logprobs,
    )
