"""`transformers serve` with continuous batching, whose model is replaced by a thread that makes a token a step for
each request; everything else is what users run. Works with transformers 5.23.

python stub_transformers.py SECONDS_A_STEP serve FOLDER --continuous-batching --port PORT …
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from transformers import PreTrainedModel
from transformers.cli.transformers import main
from transformers.generation.continuous_batching.requests import GenerationOutput, RequestStatus

FIRST_WORD = 300


class StubBatching:
    """Has what `transformers.cli.serving` uses of a ContinuousBatchingManager.

    Results reach the event loop as the real manager's do: one call for all of a step.
    """

    def __init__(self, step_s: float) -> None:
        self.background_thread_status = SimpleNamespace(fatal_error=None)
        self._step_s = step_s
        self._running: dict[str, tuple[list[int], int]] = {}
        self._handlers: dict[str, Callable[[GenerationOutput], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start making tokens."""
        threading.Thread(target=self._run, daemon=True).start()

    def register_result_handler(self, request_id: str, handler: Callable[[GenerationOutput], None]) -> None:
        """Hand a request's results to a function, on the loop of the caller."""
        self._loop = asyncio.get_running_loop()
        self._handlers[request_id] = handler

    def add_request(self, input_ids: Any, request_id: str, max_new_tokens: int, **_: Any) -> str:
        """Accept a request."""
        self._running[request_id] = ([], max_new_tokens)
        return request_id

    def cancel_request(self, request_id: str) -> None:
        """End a request."""
        self._running.pop(request_id, None)

    def stop(self, **_: Any) -> None:
        """Nothing is left to be done: the thread ends with the process."""

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self._step_s, time.monotonic())
            time.sleep(due - time.monotonic() if due > time.monotonic() else 0)
            outputs = [self._advance(request_id) for request_id in list(self._running)]
            if outputs and self._loop is not None:
                self._loop.call_soon_threadsafe(self._deliver, outputs)

    def _advance(self, request_id: str) -> GenerationOutput:
        tokens, asked = self._running[request_id]
        tokens.append(FIRST_WORD + (len(tokens) * 37) % 2048)
        if len(tokens) == asked:
            del self._running[request_id]
        status = RequestStatus.FINISHED if len(tokens) == asked else RequestStatus.DECODING
        return GenerationOutput(request_id=request_id, generated_tokens=list(tokens), status=status)

    def _deliver(self, outputs: list[GenerationOutput]) -> None:
        for output in outputs:
            handler = self._handlers.get(output.request_id)
            if handler is not None:
                handler(output)


if __name__ == "__main__":
    step_s = float(sys.argv.pop(1))
    PreTrainedModel.init_continuous_batching = lambda self, **_: StubBatching(step_s)
    main()
