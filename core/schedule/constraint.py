"""Constrains one output by a grammar and a thinking budget, and tracks the state of both on the host.

    before ──begin──► inside ──end──► space ──► after
      └────────────any other token───────────────┘

The opening mark and the closing mark are the tokens around the thinking, such as <think> and </think>. The
grammar applies in the phase "after". In the phase "space", which only some models have, one token of white
space may come first.

Some tokens are forced, because only one continuation is possible: the closing mark once the thinking budget
is spent, the rest of an opening mark, or tokens that the grammar forces. Forced tokens are queued and must be
accepted in order. So the output is the same whether they are sampled one by one or appended together.

This module handles token ids and mask bits; it does not depend on logits, steps or sequences.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmfw.core.base.errors import EngineError, GrammarCostError, RequestError
from llmfw.core.base.request import Request
from llmfw.core.interfaces.grammar import Grammar
from llmfw.core.plugin.calls import ComponentCalls

from .cpu_time import CPUTime
from .step_cost import StepCost

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.int32]

logger = logging.getLogger(__name__)

KEPT_FOR_ANSWER = 1024
"""Number of tokens reserved for the answer if a grammar follows the thinking; at most a quarter of
`max_tokens`."""


class Phase(enum.Enum):
    """Phase of an output relative to its thinking. An output without thinking is AFTER from the start."""

    BEFORE = 1
    INSIDE = 2
    SPACE = 3
    AFTER = 4


class _StuckError(ValueError):
    """Raised if a grammar allows no token and its backend did not raise."""


class Constraint:
    """State of one output's grammar, thinking and bad words of several tokens.

    Args:
        request: the output's request. With a grammar, it must have an end-of-sequence token. It must not
            combine bad words with a grammar or a thinking budget; `check_request` rejects such requests. The
            constructor accepts the tokens of `Request.output` at once, and raises the errors of `accept`.
        grammar: grammar in its initial state, used by this output only; None: the output has no grammar.
        calls: record of the calls of the grammar's backend; None: failures are not attributed to a plugin.
        on_cost: function called when the grammar has taken too much CPU time or is too complex.

    Attributes:
        forced: tokens that must come next, in this order, regardless of the logits.
        has_ended: whether the grammar has ended the output. The output then ends even if it has fewer tokens
            than `min_tokens`.
        is_hastened: whether tokens were removed from the masks to end the output before `max_tokens`.
    """

    __slots__ = (
        "_bad_words",
        "_budget",
        "_calls",
        "_cost",
        "_eos",
        "_failure",
        "_grammar",
        "_num_begun",
        "_num_thought",
        "_on_cost",
        "_phase",
        "_recent",
        "_space",
        "_tail",
        "_thinking",
        "forced",
        "has_ended",
        "is_hastened",
    )

    def __init__(
        self,
        request: Request,
        grammar: Grammar | None,
        calls: ComponentCalls | None = None,
        on_cost: Callable[[], None] = lambda: None,
    ) -> None:
        thinking = request.thinking
        assert grammar is None or request.eos_token_ids
        self.forced: deque[int] = deque()
        self.has_ended = False
        self.is_hastened = False
        self._grammar = grammar
        self._thinking = thinking
        self._budget = _budget_of(request, grammar)
        self._space = thinking.space if thinking and grammar else ()
        self._eos = request.eos_token_ids
        self._calls = calls
        self._cost = StepCost()
        self._on_cost = on_cost
        self._failure: Exception | None = None
        self._num_begun = 0  # tokens of the opening mark so far
        self._num_thought = 0  # tokens after the opening mark
        self._tail: deque[int] = deque(maxlen=len(thinking.end) if thinking else 0)
        words = [word for word in request.sampling.bad_words if len(word) > 1]
        self._bad_words: dict[int, list[tuple[int, ...]]] = {}  # by the token before the last one
        for word in words:
            self._bad_words.setdefault(word[-2], []).append(word)
        self._recent: deque[int] = deque(maxlen=max(map(len, words), default=1) - 1)
        self._phase = Phase.AFTER
        if thinking is not None and (thinking.is_open or thinking.begin):
            self._phase = Phase.INSIDE if thinking.is_open else Phase.BEFORE
        self._force()
        for token_id in request.output:
            self.accept(token_id)

    @property
    def has_mask(self) -> bool:
        """Whether any token is forbidden as the next token."""
        if self._bad_words:
            return bool(self._banned())
        return bool(self.forced) or (self._grammar is not None and not self.has_ended)

    @property
    def grammar_to_ask(self) -> Grammar | None:
        """Grammar that must compute the next token's mask; None if the mask does not depend on a grammar."""
        return None if self.forced or self._phase is Phase.INSIDE else self._grammar

    @property
    def is_held(self) -> bool:
        """Whether the grammar restricts the next token without forcing a particular one."""
        return self._phase is Phase.AFTER and not self.has_ended and self.grammar_to_ask is not None

    @property
    def needs_next_token(self) -> bool:
        """Whether the next token must be known before the one after it is sampled."""
        if self.forced or self._grammar is not None or self._bad_words:
            return True
        if self._phase is Phase.AFTER:
            return False
        assert self._thinking is not None
        num_thought = self._num_thought + (self._phase is Phase.INSIDE)
        return self._budget is not None and num_thought >= self._budget

    def edit_mask(self, words: Words) -> None:
        """Apply bad words, forced tokens and the thinking phase to the mask of the next token.

        Args:
            words: mask from `grammar_to_ask`, or zeros if `grammar_to_ask` is None: [ceil(vocab / 32)].
                Changed in place.
        """
        if self._bad_words:
            words[:] = -1
            forbid(words, self._banned())
        elif self.forced:
            words[:] = 0
            allow(words, self.forced[0])
        elif self._phase is Phase.INSIDE:
            # If a grammar waits for the end of the thinking, the output cannot end inside the thinking.
            words[:] = -1
            forbid(words, self._eos)
        elif self._phase is Phase.BEFORE:
            assert self._thinking is not None
            allow(words, self._thinking.begin[0])
        elif self._phase is Phase.SPACE:
            for token_id in self._space:
                allow(words, token_id)

    def _banned(self) -> list[int]:
        """Return the tokens that would complete a bad word."""
        recent = tuple(self._recent)
        words = self._bad_words.get(recent[-1], ()) if recent else ()
        return [word[-1] for word in words if recent[1 - len(word) :] == word[:-1]]

    def charge_mask(self, seconds: float) -> None:
        """Add the CPU time of a mask to the grammar's debt (see `step_cost`).

        `accept` raises if the debt is too large.
        """
        self._cost.charge(seconds)

    def fail(self, reason: str | Exception) -> None:
        """Record that the next token's mask could not be computed.

        The token is sampled without a mask, and `accept` then raises.

        Args:
            reason: reason as text, or the exception that the grammar's backend raised.
        """
        self._failure = self._failure or (_StuckError(reason) if isinstance(reason, str) else reason)

    def blame(self, error: Exception, where: str) -> Exception:
        """Return the error that ends the request after an exception from `accept`.

        Logs the exception unless the request caused it.

        Args:
            where: description of what failed, for the log.
        """
        if isinstance(error, RequestError):
            if isinstance(error, GrammarCostError):
                self._on_cost()
            return error
        if self._calls is None or isinstance(error, _StuckError):
            logger.error("%s does not go on: %s", where, error, exc_info=error)
            return EngineError(f"the grammar failed: {error}")
        return self._calls.failed(error, where)

    def accept(self, token_id: int) -> None:
        """Advance the state by one token.

        Raises:
            ValueError: the grammar does not allow the token.
            RequestError: the grammar has taken too much CPU time.
            Exception: the exception that was passed to `fail`, or another error of the grammar.
        """
        if self._failure is not None:
            raise self._failure
        self._recent.append(token_id)
        is_forced = bool(self.forced)
        if is_forced:
            forced = self.forced.popleft()
            assert token_id == forced, "a forced token was not taken"
        if self._phase is Phase.BEFORE:
            self._begin(token_id)
        elif self._phase is Phase.INSIDE:
            self._think(token_id)
        else:
            if self._phase is Phase.AFTER or token_id not in self._space:
                self._follow(token_id)
            self._phase = Phase.AFTER
        if not self.forced:
            self._force()
        if self._grammar is not None and not self.has_ended:
            if not is_forced:
                self._cost.allow()
            self._cost.check()

    def _begin(self, token_id: int) -> None:
        assert self._thinking is not None
        if token_id != self._thinking.begin[self._num_begun]:
            self._phase = Phase.AFTER
            self._follow(token_id)
            return
        self._num_begun += 1
        if self._num_begun == len(self._thinking.begin):
            self._phase = Phase.INSIDE

    def _think(self, token_id: int) -> None:
        assert self._thinking is not None
        self._num_thought += 1
        self._tail.append(token_id)
        if tuple(self._tail) == self._thinking.end:
            self._phase = Phase.SPACE if self._space else Phase.AFTER

    def _follow(self, token_id: int) -> None:
        if self._grammar is None:
            return
        is_end = token_id in self._eos
        if not (is_end and self._grammar.is_finished()):
            # A grammar whose state is broken allows the end token, so that its mask is not empty, and then
            # rejects the token in `accept`.
            with CPUTime() as taken:
                self._grammar.accept(token_id)
            self._cost.charge(taken.seconds)
        self.has_ended = is_end

    def hasten(self) -> None:
        """Record that tokens were removed from a mask to end the output before `max_tokens`."""
        self.is_hastened = True

    def _force(self) -> None:
        """Queue the next tokens if only one continuation is possible."""
        thinking = self._thinking
        if self._phase is Phase.BEFORE:
            assert thinking is not None
            # The grammar has not seen the mark's first tokens, so the output cannot switch to the grammar.
            if self._grammar is not None and self._num_begun:
                self.forced.extend(thinking.begin[self._num_begun :])
        elif self._phase is Phase.INSIDE:
            assert thinking is not None
            if self._budget is not None and self._num_thought >= self._budget:
                self.forced.extend(thinking.end[_num_matched(self._tail, thinking.end) :])
        elif self._phase is Phase.AFTER and self._grammar is not None and not self.has_ended:
            if self._grammar.is_finished():
                self.forced.append(self._eos[0])
            else:
                with CPUTime() as taken:
                    self.forced.extend(self._grammar.forced())
                self._cost.charge(taken.seconds)


def constraint_of(
    request: Request,
    grammar: Grammar | None,
    calls: ComponentCalls | None = None,
    on_cost: Callable[[], None] = lambda: None,
) -> Constraint | None:
    """Return a request's constraint; None if the request needs none.

    A request needs a constraint if it has a grammar, a thinking budget or bad words of several tokens.

    Args:
        calls: record of the calls of the grammar's backend.
        on_cost: function called when the grammar is too expensive.
    """
    has_budget = request.thinking is not None and request.thinking.budget is not None
    words = request.sampling.bad_words
    has_words = bool(words) and any(len(word) > 1 for word in words)
    needed = grammar is not None or has_budget or has_words
    return Constraint(request, grammar, calls, on_cost) if needed else None


def _budget_of(request: Request, grammar: Grammar | None) -> int | None:
    """Return the maximum number of thinking tokens; None: no limit.

    If a grammar applies after the thinking, part of `max_tokens` is reserved for the answer.
    """
    if request.thinking is None:
        return None
    budget, most = request.thinking.budget, request.sampling.max_tokens
    if grammar is None or most is None:
        return budget
    left = most - min(KEPT_FOR_ANSWER, most // 4)
    return left if budget is None else min(budget, left)


def allow(words: Words, token_id: int) -> None:
    """Set a token's bit in a mask: [ceil(vocab / 32)]."""
    words.view("uint32")[token_id // 32] |= 1 << token_id % 32


def forbid(words: Words, token_ids: Sequence[int]) -> None:
    """Clear tokens' bits in a mask: [ceil(vocab / 32)]."""
    unsigned = words.view("uint32")
    for token_id in token_ids:
        unsigned[token_id // 32] &= 0xFFFFFFFF ^ (1 << token_id % 32)


def _num_matched(tail: deque[int], mark: tuple[int, ...]) -> int:
    """Return the length of the longest prefix of `mark` that is also a suffix of `tail`."""
    seen = tuple(tail)
    return next(n for n in range(min(len(seen), len(mark)), -1, -1) if seen[len(seen) - n :] == mark[:n])
