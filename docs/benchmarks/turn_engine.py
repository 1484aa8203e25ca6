"""An engine in the API's own process that makes tokens only when it is asked to, so that their cost can be counted."""

from __future__ import annotations

from stub_engine import StubEngine

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Abort, EventBatch, Request, ToEngine
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.ipc.wire import encode, framed


class TurnEngineClient(SupervisedEngineClient):
    """The server's client of a stub engine, whose steps are computed first and delivered later.

    Args:
        model: folder of the model.
    """

    def __init__(self, model: str) -> None:
        self._stub = _Stub(model)
        super().__init__(lambda: self._stub)

    @property
    def num_running(self) -> int:
        """Number of requests that have not ended."""
        return self._stub.engine.stats().num_running

    @property
    def num_sent_bytes(self) -> int:
        """Bytes of all messages to the engine so far."""
        return self._stub.num_sent_bytes

    def encoded_steps(self, num: int) -> list[bytes]:
        """Compute steps of all running requests; return the message of each."""
        return [encode(EventBatch(self._stub.engine.step())) for _ in range(num)]

    def deliver(self, message: bytes) -> None:
        """Do what the API's process does with a message of its engine."""
        self._stub.take(message)


class _Stub(ProcessEngineClient):
    """Encodes and decodes all messages, and has a stub engine in place of a process."""

    def __init__(self, model: str) -> None:
        super().__init__(EngineConfig(model=model))
        self.engine = StubEngine(model, 0.0)
        self.num_sent_bytes = 0

    async def start(self) -> None:
        self._info = self.engine.info

    async def close(self) -> None:
        """Do nothing: there is no process."""

    def take(self, message: bytes) -> None:
        """Handle a message as if it had come over the socket."""
        self._handle(message)

    def _send(self, message: ToEngine) -> None:
        self.num_sent_bytes += len(framed(encode(message)))
        if isinstance(message, Request):
            self.engine.add(message)
        elif isinstance(message, Abort):
            for each in message.ids:
                self.engine.abort(each)
