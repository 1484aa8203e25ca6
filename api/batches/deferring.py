"""An engine client whose requests are deferrable: they use only capacity that live requests do not need.

Services use it like any other engine client.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import msgspec

from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.client.forwarding import ForwardingEngineClient

from .work_marks import Mark, current_mark

INTERVAL = 32  # tokens per event; no client reads them as they are generated, so events can be few
STOP_INTERVAL = 8  # smaller, because tokens that are generated after a stop string are wasted


class DeferringClient(ForwardingEngineClient):
    """Passes requests to another client, marked as deferrable. Does not start or close the other client."""

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        interval = STOP_INTERVAL if request.sampling.stop else INTERVAL
        stream = self._client.generate(
            msgspec.structs.replace(request, deferrable=True, stream_interval=interval, tell_wait=False)
        )
        mark = current_mark.get()
        return stream if mark is None or self.failure is not None else _clear_mark_while_waiting(stream, mark)

    async def embed(self, request: EmbedRequest) -> bytes:
        deferrable = msgspec.structs.replace(request, deferrable=True)
        mark = current_mark.get()
        if mark is None or self.failure is not None:
            return await self._client.embed(deferrable)
        with mark.stream(), mark.waiting():
            return await self._client.embed(deferrable)


async def _clear_mark_while_waiting(
    stream: AsyncGenerator[TokenEvent, None], mark: Mark
) -> AsyncGenerator[TokenEvent, None]:
    """Yield the events of a stream. Clears the line's mark (`work_marks`) during each wait for an event."""
    async with contextlib.aclosing(stream):
        with mark.stream():
            while True:
                with mark.waiting():
                    event = await anext(stream, None)
                if event is None:
                    return
                yield event
