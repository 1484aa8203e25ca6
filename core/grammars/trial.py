"""Tries out a grammar: prepares and compiles it, and runs its first steps as the engine would.

Runs in a child process (`child`), because the backend may crash, hang or use up all memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import thread_time
from typing import ParamSpec, TypeVar

import msgspec
import numpy as np

from llmfw.core.base.described import described
from llmfw.core.base.errors import GrammarCostError, RequestError
from llmfw.core.base.memory import resident_bytes
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend

from .emptiness import needs_text
from .messages import Limits

FEW_STEPS, FEW_STEPS_S = 2, 0.002
MANY_STEPS, MANY_STEPS_S = 64, 0.5
BYTES_A_CHAR = 32
"""Lower bound of a compiled grammar's size, in bytes per character of its source. The measured size may be
too small if freed memory was reused."""
MAX_FORCED = 256
"""Maximum number of forced tokens to try in a step."""


ArgsT = ParamSpec("ArgsT")
FoundT = TypeVar("FoundT")


class FailedCallError(Exception):
    """The backend does not do what its interface promises.

    Attributes:
        where: method of the backend or of its grammar, as in "accept()".
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def asked(method: Callable[ArgsT, FoundT], *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> FoundT:
    """Call a method of the backend or of a grammar.

    Raises:
        RequestError, MemoryError, RecursionError: raised by the method; the grammar is at fault.
        FailedCallError: the method raised something else.
    """
    try:
        return method(*args, **kwargs)
    except (RequestError, MemoryError, RecursionError):
        raise
    except BaseException as error:  # a plugin may raise anything
        name = getattr(method, "__name__", type(method).__name__)
        raise FailedCallError(f"{name}()", described(error)) from error


def prove(
    backend: GrammarBackend, spec: GrammarSpec, vocab_size: int, eos_token_ids: Sequence[int], limits: Limits
) -> GrammarSpec:
    """Try out a client's grammar. Returns the spec for the engine to compile, with the grammar's size.

    Args:
        vocab_size: width of the logits.
        eos_token_ids: tokens that end an output.

    Raises:
        RequestError: the grammar is invalid.
        GrammarCostError: the grammar exceeds a limit.
        FailedCallError: the backend is at fault.
    """
    before = resident_bytes()
    prepared = asked(backend.prepare, spec)
    if len(prepared.source) > limits.max_prepared:
        raise GrammarCostError(
            f"the grammar is too complex: written out it has {len(prepared.source)} characters, and the limit is "
            f"{limits.max_prepared}"
        )
    grammar = asked(backend.compile, prepared)
    _Trial(backend, vocab_size, eos_token_ids, limits).run(grammar, spec)
    num_bytes = max(len(prepared.source) * BYTES_A_CHAR, resident_bytes() - before)
    return msgspec.structs.replace(prepared, num_bytes=num_bytes)


class _Trial:
    """Runs the first steps of a grammar.

    Args:
        backend: backend of the grammar.
        vocab_size: width of the logits.
        eos_token_ids: tokens that end an output.
        limits: limits of the steps.
    """

    def __init__(
        self, backend: GrammarBackend, vocab_size: int, eos_token_ids: Sequence[int], limits: Limits
    ) -> None:
        self._backend = backend
        self._eos = frozenset(eos_token_ids)
        self._words = -(-vocab_size // 32)
        self._step_s = limits.step_ms / 1000
        self._random = random.Random(0)

    def run(self, grammar: Grammar, spec: GrammarSpec) -> None:
        """Run steps until the output ends, or until enough steps have run or enough time has passed.

        Context-free grammars are tried for longer: they may be ambiguous, and each step is then slower than
        the previous one.

        Raises:
            RequestError: the grammar allows no output.
            GrammarCostError: a step takes too long, or the backend gives up.
            FailedCallError: the backend is at fault.
        """
        is_free = spec.kind == "ebnf" or (spec.kind == "structural_tag" and '"grammar"' in spec.source)
        steps, seconds = (MANY_STEPS, MANY_STEPS_S) if is_free else (FEW_STEPS, FEW_STEPS_S)
        begun, state = thread_time(), asked(grammar.copy)
        for step in range(steps):
            step_begun = thread_time()
            if asked(state.is_finished):
                if step == 0:
                    self._check_empty(state, spec)
                return
            if not self._advance(state, self._allowed(state)):
                return
            now = thread_time()
            # The first step may take longer, because it may fill caches that later steps use.
            if now - step_begun > self._step_s * (4 if step == 0 else 1):
                raise GrammarCostError(
                    f"the grammar is too complex: choosing a token takes {1000 * (now - step_begun):.0f} ms, and the "
                    f"limit is {1000 * self._step_s:.0f} ms; make it smaller or less ambiguous"
                )
            if now - begun > seconds:
                return

    def _check_empty(self, state: Grammar, spec: GrammarSpec) -> None:
        """Raise FailedCallError if a grammar wrongly counts as finished at its start.

        Such a grammar makes every output empty. Only the backend knows whether a regular expression allows an
        empty output. So the backend's mask must agree.
        """
        if needs_text(spec):
            what = "JSON that fits a schema" if spec.kind == "json_schema" else "an output"
            raise FailedCallError(
                "is_finished()", f"an empty output counts as {what}; the grammar requires text"
            )
        allowed = self._allowed(state)
        others = [int(token) for token in allowed if int(token) not in self._eos]
        if others or not len(allowed):
            allows = f"allows token {others[0]}" if others else "does not allow the end"
            raise FailedCallError("is_finished()", f"only the end may follow, but fill_masks() {allows}")

    def _allowed(self, state: Grammar) -> np.ndarray:
        """Return the ids that the mask of the next token allows, ascending."""
        mask = np.zeros((1, self._words), dtype=np.int32)
        asked(self._backend.fill_masks, [state], mask)
        return np.flatnonzero(np.unpackbits(mask[0].view(np.uint8), bitorder="little"))

    def _advance(self, state: Grammar, allowed: np.ndarray) -> bool:
        """Advance the grammar by its forced tokens, or else by a random allowed token.

        Returns False if the output has ended.
        """
        tokens: Sequence[int] = asked(state.forced)[:MAX_FORCED]
        source = "forced() returned it"
        if not tokens:
            if not len(allowed):
                raise FailedCallError("fill_masks()", "it allows no token, and no method has raised")
            tokens, source = [int(self._random.choice(allowed))], "fill_masks() allows it"
        for token in tokens:
            if asked(state.is_finished):
                return False
            try:
                asked(state.accept, token)
            except FailedCallError as error:
                raise FailedCallError(error.where, f"{error} (token {token}: {source})") from error
        return True
