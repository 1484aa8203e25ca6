"""Event logs of background responses: numbered stream frames, stored so that clients can read them later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from llmfw.api.http.sse import frame
from llmfw.api.schemas.responses import Response
from llmfw.core.base.errors import RequestError

from .output import Event

MAX_LOG = 4 * 2**20  # bytes of one log; some 18,000 events
MAX_ENDED = 64 * 2**20  # bytes of all logs that have ended

_encode = msgspec.json.Encoder().encode


class Frames:
    """Encodes and numbers the events of one response.

    Args:
        response: the response, which lifecycle events contain.
    """

    def __init__(self, response: Response) -> None:
        self._response = response
        self._number = 0

    def lifecycle(self, event: str) -> bytes:
        """Return the frame of an event that contains the whole current response."""
        return self.encode([{"type": f"response.{event}", "response": self._response}])[0]

    def encode(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frame of each event, with the event's name on a line of its own."""
        frames = []
        for event in events:
            numbered = {**event, "sequence_number": self._number}
            frames.append(b"event: %b\n%b" % (event["type"].encode(), frame(_encode(numbered))))
            self._number += 1
        return frames


class EventLog:
    """The stored frames of one response, while it runs and after its end. Supports any number of readers.

    Args:
        response: the response of the events.
        max_bytes: limit of `num_bytes`; if it is exceeded, the older half of the frames is dropped.

    Attributes:
        num_bytes: total size of the stored frames, in bytes.
        ended: whether the last frame was added.
    """

    def __init__(self, response: Response, max_bytes: int = MAX_LOG) -> None:
        self.num_bytes = 0
        self.ended = False
        self._max_bytes = max_bytes
        self._encoder = Frames(response)
        self._frames: list[bytes] = []
        self._first = 0  # number of the first stored frame
        self._changed = asyncio.Event()

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events."""
        self._keep(self._encoder.encode(events))

    def show(self, event: str) -> None:
        """Add an event that contains the whole current response."""
        self._keep([self._encoder.lifecycle(event)])

    def end(self, event: str) -> None:
        """Add the last event, which contains the whole final response. Readers stop after it."""
        self.ended = True
        self.show(event)

    def check(self, after: int) -> None:
        """Raise RequestError if the frames after this number were dropped, or if no frame has the number yet.

        Args:
            after: number of the last frame that the client has; -1: none.
        """
        last = self._first + len(self._frames) - 1
        if not self._first - 1 <= after <= last:
            raise RequestError(
                f"starting_after is {after}; the stream can be read after the numbers from {self._first - 1} to {last}",
                param="starting_after",
            )

    async def read(self, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the stored frames after this number, then new frames as they arrive, up to the end.

        Raises:
            RequestError: as in `check`; also in mid-stream, if frames were dropped before a slow reader got
                them.
        """
        while True:
            self.check(after)
            changed = self._changed
            frames = self._frames[after + 1 - self._first :]
            if frames:
                after += len(frames)
                yield b"".join(frames)
            elif self.ended:
                return
            else:
                await changed.wait()

    def _keep(self, frames: Sequence[bytes]) -> None:
        self._frames += frames
        self.num_bytes += sum(map(len, frames))
        if self.num_bytes > self._max_bytes:
            num_dropped = len(self._frames) // 2
            self.num_bytes -= sum(map(len, self._frames[:num_dropped]))
            del self._frames[:num_dropped]
            self._first += num_dropped
        self._changed.set()
        self._changed = asyncio.Event()


class EventLogs:
    """The logs of running and ended background responses.

    Args:
        max_ended: maximum size of all ended logs together, in bytes. If they are larger, `open` removes the
            oldest of them.
    """

    def __init__(self, max_ended: int = MAX_ENDED) -> None:
        self._max_ended = max_ended
        self._logs: dict[str, EventLog] = {}

    def open(self, response: Response) -> EventLog:
        """Start the log of a response."""
        self._trim()
        log = self._logs[response.id] = EventLog(response)
        return log

    def find(self, response_id: str) -> EventLog | None:
        """Return the log of a response, or None if it does not exist or was removed."""
        return self._logs.get(response_id)

    def forget(self, response_id: str) -> None:
        """Remove the log of a response, if there is one."""
        self._logs.pop(response_id, None)

    def _trim(self) -> None:
        ended = {id: log.num_bytes for id, log in self._logs.items() if log.ended}
        excess = sum(ended.values()) - self._max_ended
        for id, num_bytes in ended.items():
            if excess <= 0:
                return
            del self._logs[id]
            excess -= num_bytes
