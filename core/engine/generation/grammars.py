"""Compiles the grammars of requests in separate threads, and holds each request until its grammar is ready.

The first request with a grammar creates the backend, which reads the tokenizer. Without such requests,
neither is needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from llmfw.core.base.cgroup import num_cpus
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import GrammarCostError, RequestError
from llmfw.core.base.request import GrammarSpec, Request
from llmfw.core.grammars.child import STACK_BYTES as PROVED_STACK
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.containment import contained
from llmfw.core.plugin.grammar_choice import build_grammar_backend, choose_grammar_backend
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.constraint import Constraint, constraint_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

logger = logging.getLogger(__name__)

MAX_COMPILED = 256
MAX_BYTES = 2**29
"""Limit on the memory of all cached grammars, in bytes."""
MAX_THREADS = 4
STACK_BYTES = 4 * PROVED_STACK
"""Stack of the compiling threads in bytes: far more than the grammar needed in its trial compilation, so that
it cannot overflow."""
COMPILING_NICENESS = 15

MakeBackend = Callable[[], GrammarBackend]


class Grammars:
    """Compiles grammars, and caches them by spec. The engine's thread calls all methods.

    Args:
        make_backend: function that creates the backend, called once, in another thread; None: requests with a
            grammar are refused.
        reason: message for the client if a request is refused.
        calls: records the calls of the backend; None: calls are not recorded.
        max_compiled: maximum number of cached grammars; the least recently used are dropped first.
        max_bytes: maximum memory of all cached grammars in bytes, as measured in their trial compilations.
    """

    def __init__(
        self,
        make_backend: MakeBackend | None,
        reason: str = "",
        *,
        calls: ComponentCalls | None = None,
        max_compiled: int = MAX_COMPILED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._make_backend = make_backend
        self._reason = reason
        self._calls = calls
        self._max_compiled = max_compiled
        self._max_bytes = max_bytes
        self._num_bytes = 0  # of the grammars in `_compiled`
        self._backend: GrammarBackend | None = None
        self._lock = threading.Lock()  # held while the backend is made
        self._threads: ThreadPoolExecutor | None = None
        self._compiled: OrderedDict[GrammarSpec, Future[Grammar]] = OrderedDict()
        self._costly: OrderedDict[GrammarSpec, None] = OrderedDict()
        self._waiting: dict[str, tuple[Request, Future[Grammar]]] = {}
        self._done: deque[str] = deque()  # other threads append
        self._wake: Callable[[], None] = lambda: None

    def __contains__(self, request_id: str) -> bool:
        """Return whether a request waits for its grammar."""
        return request_id in self._waiting

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for their grammar."""
        return len(self._waiting)

    @property
    def has_ready(self) -> bool:
        """Whether `take_ready` may have something to return."""
        return bool(self._done)

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        """Register a function to call, in any thread, whenever `has_ready` becomes true."""
        self._wake = wake

    def check(self) -> None:
        """Raise RequestError if there is no backend."""
        if self._make_backend is None:
            raise RequestError(self._reason, param="grammar")

    def get(self, request: Request) -> Grammar | None:
        """Return the grammar of a request if it is compiled.

        Otherwise, start to compile it, hold the request until `take_ready` returns it, and return None.

        Raises:
            GrammarCostError: an earlier output with this grammar was ended because masks took too much time.
        """
        spec = request.grammar
        assert spec is not None
        if spec in self._costly:
            raise GrammarCostError(
                "the grammar is too complex: an earlier output was ended for it; make it smaller or less ambiguous",
                param="grammar",
            )
        future = self._compiled.get(spec)
        if future is None:
            future = self._compiled[spec] = self._start(spec)
            self._num_bytes += spec.num_bytes
            self._forget_oldest()
        self._compiled.move_to_end(spec)
        if future.done() and future.exception() is None:
            return self._copy(future)
        self._waiting[request.id] = (request, future)
        future.add_done_callback(lambda _: self._on_done(request.id))
        return None

    def take_ready(self) -> Iterator[tuple[Request, Grammar | Exception]]:
        """Yield the requests that no longer wait, each with its own copy of the grammar, or with the
        error."""
        while self._done:
            request_id = self._done.popleft()
            request, future = self._waiting.get(request_id, (None, None))
            if request is None or future is None or not future.done():
                continue  # the request was aborted; a later one may have the same id
            del self._waiting[request_id]
            error = future.exception()
            if error is None:
                yield request, self._copy_or_error(future)
                continue
            assert request.grammar is not None
            if self._compiled.get(request.grammar) is future:
                self._forget(request.grammar)
            if not isinstance(error, Exception):
                raise error
            yield request, error

    def abort(self, request_id: str) -> None:
        """Drop a request that waits for its grammar.

        Compilation continues, because other requests may use the result.
        """
        self._waiting.pop(request_id, None)

    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        """Write the masks of allowed tokens; see `GrammarBackend.fill_masks`."""
        assert self._backend is not None
        if self._calls is None:
            self._backend.fill_masks(grammars, masks)
        else:
            self._calls.timed(self._backend.fill_masks, grammars, masks)

    def hasten(self, mask: npt.NDArray[np.int32]) -> bool:
        """Restrict a mask to tokens that bring the output nearer to its end; return whether it changed.

        See `GrammarBackend.hasten`.
        """
        assert self._backend is not None
        return self._backend.hasten(mask)

    def constraint(self, request: Request, grammar: Grammar) -> Constraint:
        """Return the constraint that applies a grammar to the output of a request.

        Raises:
            ComponentFailedError: the grammar failed.
        """
        on_cost = partial(self._note_costly, request)
        found = (
            constraint_of(request, grammar, on_cost=on_cost)
            if self._calls is None
            else self._calls.call(constraint_of, request, grammar, self._calls, on_cost)
        )
        assert found is not None
        return found

    def _note_costly(self, request: Request) -> None:
        assert request.grammar is not None
        self._costly[request.grammar] = None
        if len(self._costly) > self._max_compiled:
            self._costly.popitem(last=False)

    def _start(self, spec: GrammarSpec) -> Future[Grammar]:
        if self._threads is None:
            size = min(MAX_THREADS, num_cpus())
            self._threads = ThreadPoolExecutor(
                size, thread_name_prefix="llmfw-grammar", initializer=_give_way
            )
        with _stack_size(STACK_BYTES):
            return self._threads.submit(self._compile, spec)

    def _compile(self, spec: GrammarSpec) -> Grammar:
        with self._lock:
            if self._backend is None:
                assert self._make_backend is not None
                self._backend = self._make_backend()
        compile_ = self._backend.compile
        return compile_(spec) if self._calls is None else self._calls.call(compile_, spec)

    def _copy(self, future: Future[Grammar]) -> Grammar:
        copy = future.result().copy
        return copy() if self._calls is None else self._calls.call(copy)

    def _copy_or_error(self, future: Future[Grammar]) -> Grammar | Exception:
        try:
            return self._copy(future)
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it ends only this request
            return contained(error)

    def _on_done(self, request_id: str) -> None:
        self._done.append(request_id)
        self._wake()

    def _forget_oldest(self) -> None:
        while len(self._compiled) > self._max_compiled or (
            self._num_bytes > self._max_bytes and len(self._compiled) > 1
        ):
            self._forget(next(iter(self._compiled)))

    def _forget(self, spec: GrammarSpec) -> None:
        del self._compiled[spec]
        self._num_bytes -= spec.num_bytes


@contextlib.contextmanager
def _stack_size(num_bytes: int) -> Iterator[None]:
    """Set the stack size of threads that start within the block."""
    before = threading.stack_size(num_bytes)
    try:
        yield
    finally:
        threading.stack_size(before)


def _give_way() -> None:
    """Lower the priority of a compiling thread, so that the engine's threads run first if cores are
    scarce."""
    if sys.platform == "linux":  # where each thread has its own priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), COMPILING_NICENESS)


def choose_grammars(config: EngineConfig, registry: Registry, vocab_size: int) -> Grammars:
    """Return a `Grammars` with the backend that the config names. The backend itself is created at its first
    use.

    Raises:
        UnknownComponentError: no plugin registers the named backend.
        ComponentError: the named backend lacks a module.
    """
    if config.grammar == "none":
        return Grammars(None, "structured output is off: the server runs with --grammar none")
    entry = choose_grammar_backend(config.grammar, registry)
    if entry is None:
        return Grammars(None, "structured output needs a grammar backend; no installed plugin brings one")

    def make() -> GrammarBackend:
        tokenizer = load_tokenizer(config.model, config.load_format)
        backend = build_grammar_backend(entry, tokenizer, vocab_size, config.options)
        logger.info("Grammar backend: %s", entry.name)
        return backend

    return Grammars(make, calls=registry.ledger.of(entry))
