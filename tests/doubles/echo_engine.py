"""A double of the engine, and of nothing else: each request gets its own prompt back, a token per step, then an end.

Run as a script it is an engine process. The client, the API and everything else in the tests are the real ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import EngineError, OverloadedError, RequestError
from llmfw.core.base.request import FinishReason, Request, TokenEvent, TokenLogprob, Wait
from llmfw.core.base.step_sizes import StepSizes

# Run as a script it stands alone in its folder.
try:
    from .echo_administration import EchoAdministration
except ImportError:
    from echo_administration import EchoAdministration  # type: ignore[no-redef]

EOS = 256
WAIT = 257  # in a prompt: nothing comes until the request is aborted
CRASH = 258  # in a prompt: the step fails
REFUSE = 259  # in a prompt: the request is not accepted
BREAK = 260  # in a prompt: accepting it fails in a way that nobody expects
LATER = 261  # in a prompt: it begins a while after it was accepted, by another thread
FAIL = 262  # in a prompt: in its place the request ends by an error
FULL = 263  # in a prompt: the request is not accepted now
SOON = 264  # in a prompt: it begins a while after it was accepted, by the time alone
HANG = 265  # in a prompt: the step does not end
VOCAB_SIZE = 1000


def score(token_id: int, num_top: int, given_ids: Sequence[int] = ()) -> TokenLogprob:
    """Return what the double says of a token wherever it stands: the most likely are the token and its successors."""
    logprobs = [-(token_id + 1) / 1000 - i for i in range(num_top)]
    return TokenLogprob(
        -(token_id + 1) / 1000,
        [(token_id + i) % VOCAB_SIZE for i in range(num_top)],
        logprobs,
        given_ids=list(given_ids),
        given_logprobs=[-(each + 1) / 1000 - (each != token_id) for each in given_ids],
    )


class EchoEngine:
    """Has the interface of `llmfw.core.engine.generation.engine.Engine`.

    Args:
        max_model_len: longest sequence.
        delay: seconds that a step takes.
        num_background: pieces of background work; `stats` reports the remaining ones as cached tokens.

    Attributes:
        requests: all that were accepted.
        aborted: ids of those that were aborted while they ran.
    """

    def __init__(self, max_model_len: int = 512, delay: float = 0.0, num_background: int = 0) -> None:
        self.info = EngineInfo(
            model="echo",
            architecture="Echo",
            dtype="float32",
            device="cpu",
            vocab_size=VOCAB_SIZE,
            max_model_len=max_model_len,
            max_total_tokens=4096,
            max_running_requests=64,
            attention="none",
            policy="fcfs",
        )
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self.administration = EchoAdministration(self.requests)
        self.num_background = num_background
        self._delay = delay
        self._running: dict[str, tuple[Request, int]] = {}
        self._soon: list[tuple[float, Request]] = []
        self._wake: Callable[[], None] = lambda: None
        self._report_step: Callable[[StepSizes], None] = lambda sizes: None

    @property
    def has_work(self) -> bool:
        return bool(self._running) or self.sleep_s == 0

    @property
    def sleep_s(self) -> float | None:
        return max(0.0, self._soon[0][0] - time.monotonic()) if self._soon else None

    @property
    def has_background_work(self) -> bool:
        return self.num_background > 0

    def do_background_work(self) -> None:
        self.num_background -= 1

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    cache_journal = None

    def call_before_steps(self, report: Callable[[StepSizes], None]) -> None:
        self._report_step = report

    def add(self, request: Request) -> None:
        if REFUSE in request.prompt:
            raise RequestError("the engine refuses this prompt", param="prompt")
        if FULL in request.prompt:
            raise OverloadedError("the queue is full", retry_after_s=7.5)
        if BREAK in request.prompt:
            raise ZeroDivisionError("a defect of the engine")
        self.requests.append(request)
        if LATER in request.prompt:
            threading.Timer(0.2, self._begin, (request,)).start()
        elif SOON in request.prompt:
            self._soon.append((time.monotonic() + 0.2, request))
        else:
            self._running[request.id] = (request, len(request.output))

    def abort(self, request_id: str) -> None:
        if self._running.pop(request_id, None):
            self.aborted.append(request_id)

    def is_running(self, request_id: str) -> bool:
        return request_id in self._running

    def step(self) -> list[TokenEvent]:
        self._report_step(StepSizes(len(self._running), len(self._running)))
        time.sleep(self._delay or 0.0005)
        while self.sleep_s == 0:
            self._begin(self._soon.pop(0)[1])
        return [
            event for request, done in list(self._running.values()) for event in self._next(request, done)
        ]

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self._running),
            num_waiting=0,
            num_used_tokens=0,
            num_cached_tokens=self.num_background,
            num_total_tokens=4096,
        )

    def control(self, command: Command) -> Answer:
        return self.administration.answer(command)

    def _begin(self, request: Request) -> None:
        self._running[request.id] = (request, len(request.output))
        self._wake()

    def _next(self, request: Request, done: int) -> list[TokenEvent]:
        if WAIT in request.prompt:
            tells = request.tell_wait and not done  # as an engine does that has not come to it
            self._running[request.id] = (request, 1)
            return [TokenEvent(request.id, [], wait=Wait(0))] if tells else []
        if CRASH in request.prompt:
            raise RuntimeError("the step failed")
        if HANG in request.prompt:
            time.sleep(3600)
        end = done == len(request.prompt)
        reason = FinishReason.STOP if end else None
        if not end and done + 1 == request.sampling.max_tokens:
            reason = FinishReason.LENGTH
        if reason is None:
            self._running[request.id] = (request, done + 1)
        else:
            del self._running[request.id]
        token = EOS if end else request.prompt[done]
        if token == FAIL:
            self._running.pop(request.id, None)
            return [TokenEvent.failed(request.id, EngineError("there are no more tokens"))]
        event = TokenEvent(request.id, [token], reason, self._cached(request) if done == 0 else 0)
        if request.logprobs is not None:
            event.logprobs = [score(token, request.logprobs, request.logprob_token_ids)]
        if request.prompt_logprobs is not None and done == 0:
            named = request.prompt_logprob_token_ids
            event.prompt_logprobs = [
                score(each, request.prompt_logprobs, named)
                for each in request.prompt[request.prompt_logprobs_start :]
            ]
        return [event]

    def _cached(self, request: Request) -> int:
        seen = any(other.prompt == request.prompt for other in self.requests if other.id != request.id)
        return len(request.prompt) - 1 if seen else 0


if __name__ == "__main__":
    from llmfw.core.engine.process.process import main

    main(lambda config: EchoEngine(delay=0.01, num_background=3))  # type: ignore[arg-type,return-value]
