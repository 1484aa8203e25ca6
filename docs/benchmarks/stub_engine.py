"""An engine without a model: one token a step for each request, at a steady pace. Its process stands in for the real
engine's where the cost of everything else is measured.

    python stub_engine.py SECONDS_A_STEP
"""

from __future__ import annotations

import sys
import time
from typing import Any

from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.request import FinishReason, Request, TokenEvent
from llmfw.core.engine.process.process import main

VOCAB_SIZE = 4096
FIRST_WORD = 300  # tokens from here on are words in the demo model's vocabulary


class StubEngine:
    """Has the interface of `llmfw.core.engine.generation.engine.Engine`.

    Args:
        model: for its name.
        step_s: seconds from one step to the next.
    """

    def __init__(self, model: str, step_s: float) -> None:
        self.info = EngineInfo(
            model=model,
            architecture="stub",
            dtype="none",
            device="none",
            vocab_size=VOCAB_SIZE,
            max_model_len=100_000,
            max_total_tokens=100_000,
            max_running_requests=8192,
            attention="none",
            policy="none",
        )
        self._step_s = step_s
        self._next = 0.0
        self._running: dict[str, tuple[int, int, int]] = {}  # tokens done, asked for, in one event

    @property
    def has_work(self) -> bool:
        """Whether a request runs."""
        return bool(self._running)

    @property
    def sleep_s(self) -> None:
        return None

    @property
    def has_background_work(self) -> bool:
        return False

    def call_when_ready(self, wake: Any) -> None:
        """Take note of nothing: this engine has no work that another thread could bring."""

    cache_journal = None

    def call_before_steps(self, report: Any) -> None:
        """Take note of nothing: the time of this engine's steps is not watched."""

    def add(self, request: Request) -> None:
        """Accept a request."""
        self._running[request.id] = (0, request.sampling.max_tokens or 1, request.stream_interval or 1)

    def abort(self, request_id: str) -> None:
        """End a request."""
        self._running.pop(request_id, None)

    def step(self) -> list[TokenEvent]:
        """Wait for the next step's time, and return a token of each request."""
        now = time.monotonic()
        self._next = max(self._next + self._step_s, now)
        time.sleep(self._next - now)
        return [event for id in list(self._running) if (event := self._advance(id)) is not None]

    def stats(self) -> EngineStats:
        """Return figures of nothing but the requests."""
        return EngineStats(
            num_running=len(self._running),
            num_waiting=0,
            num_used_tokens=0,
            num_cached_tokens=0,
            num_total_tokens=0,
        )

    def _advance(self, request_id: str) -> TokenEvent | None:
        """Make a token of a request; return an event of its first one, its last one, and of each full interval."""
        done, asked, interval = self._running.pop(request_id)
        done += 1
        if done < asked:
            self._running[request_id] = (done, asked, interval)
        count = 1 if done == 1 else ((done - 2) % interval) + 1
        if 1 < done < asked and count < interval:
            return None
        tokens = [FIRST_WORD + (i * 37) % (VOCAB_SIZE // 2) for i in range(done - count + 1, done + 1)]
        return TokenEvent(request_id, tokens, FinishReason.LENGTH if done == asked else None)


def build(config: Any) -> Any:
    """Return the engine that this process was asked for."""
    return StubEngine(config.model, float(sys.argv[1]))


if __name__ == "__main__":
    main(build)
