"""Computes token masks for a step: which tokens each constrained sequence may sample next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from llmfw.core.base.step import TokenMasks, Words
from llmfw.core.interfaces.grammar import Grammar
from llmfw.core.plugin.containment import contained

from .constraint import Constraint, forbid
from .cpu_time import CPUTime
from .plan import BatchPlan
from .sequence import SequenceState

MAX_CLOSING = 256
"""A grammar's output is steered to its end once at most this many tokens are left until `max_tokens`, or an
eighth of `max_tokens` if that is less."""

SUSPICIOUS_S = 0.025
"""If the masks of several grammars together take longer than this, in seconds, the masks of the next step are
computed and timed one by one."""

FillMasks = Callable[[Sequence[Grammar], Words], None]


@dataclass(frozen=True, slots=True)
class _Constrained:
    """A token that will be sampled under a constraint.

    Attributes:
        place: index among the tokens that the step samples.
        seq: sequence of the token.
        constraint: constraint of the sequence.
        num_before: number of output tokens before this token.
    """

    place: int
    seq: SequenceState
    constraint: Constraint
    num_before: int


class MaskFiller:
    """Computes the masks of a step: `make` in the calling thread, `start` in a separate thread.

    Args:
        vocab_size: width of the logits.
        fill_masks: the grammar backend's function that writes the masks of several grammars.
        hasten: the grammar backend's function that removes tokens from a mask so that the output ends soon;
            returns whether it removed any.
    """

    def __init__(
        self, vocab_size: int, fill_masks: FillMasks, hasten: Callable[[Words], bool] = lambda _: False
    ) -> None:
        self._num_words = -(-vocab_size // 32)
        self._fill_masks = fill_masks
        self._hasten = hasten
        self._thread: ThreadPoolExecutor | None = None
        self._is_suspicious = False  # the last masks of several grammars took too long

    def start(self, plan: BatchPlan) -> Callable[[], TokenMasks | None]:
        """Start to compute the masks of a plan.

        Returns:
            A function that waits until the masks are computed, and returns them as `make` does.
        """
        constrained = _constrained(plan)
        if not constrained:
            return lambda: None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llmfw-masks")
        return self._thread.submit(self._make, constrained).result

    def make(self, plan: BatchPlan) -> TokenMasks | None:
        """Return the masks of a plan, or None if no sequence in it needs one."""
        constrained = _constrained(plan)
        return self._make(constrained) if constrained else None

    def _make(self, constrained: list[_Constrained]) -> TokenMasks | None:
        """Compute the masks of these tokens.

        A mask that cannot be computed is missing from the result. In this case, the sequence's constraint has
        recorded the failure, and raises at the sequence's next token. Returns None if no mask is left.
        """
        words = np.zeros((len(constrained), self._num_words), dtype=np.int32)
        self._ask_grammars([each.constraint for each in constrained], words)
        for each, row in zip(constrained, words, strict=True):
            if _is_late(each):
                self._bring_to_end(each.constraint, row)
            _complete(each, row)
        kept = np.flatnonzero(words.any(axis=1))
        return TokenMasks(tuple(constrained[i].place for i in kept), words[kept]) if len(kept) else None

    def _bring_to_end(self, constraint: Constraint, row: Words) -> None:
        try:
            if self._hasten(row):
                constraint.hasten()
        except BaseException as error:  # noqa: BLE001 - as in `_ask_grammars`
            constraint.fail(contained(error))

    def _ask_grammars(self, constraints: list[Constraint], words: Words) -> None:
        asked = []
        grammars = []
        for i, constraint in enumerate(constraints):
            grammar = constraint.grammar_to_ask
            if grammar is not None:
                asked.append(i)
                grammars.append(grammar)
        if not grammars:
            return
        if len(grammars) > 1 and self._is_suspicious:
            self._ask_each(constraints, asked, words)
            return
        begun, taken = perf_counter(), CPUTime()
        filled = np.zeros((len(asked), self._num_words), dtype=np.int32)
        try:
            with taken:
                self._fill_masks(grammars, filled)
        except BaseException as error:  # noqa: BLE001 - must not stop the engine for other sequences
            failure = contained(error)
            if len(constraints) > 1:
                for i, constraint in enumerate(constraints):
                    self._ask_grammars([constraint], words[i : i + 1])
                return
            constraints[0].fail(failure)
        words[asked] = filled
        if len(grammars) == 1:
            constraints[asked[0]].charge_mask(taken.seconds)
        else:
            self._is_suspicious = perf_counter() - begun > SUSPICIOUS_S

    def _ask_each(self, constraints: list[Constraint], asked: list[int], words: Words) -> None:
        """Compute the grammars' masks one by one, to charge each grammar with its own CPU time."""
        begun = perf_counter()
        self._is_suspicious = False
        for i in asked:
            self._ask_grammars([constraints[i]], words[i : i + 1])
        self._is_suspicious = perf_counter() - begun > SUSPICIOUS_S


def _constrained(plan: BatchPlan) -> list[_Constrained]:
    """Return the tokens of a plan that are sampled with a mask.

    Sequences with a constraint have no drafts.
    """
    if all(seq.constraint is None for seq in plan.sequences):
        return []
    places = np.cumsum(plan.step.num_sampled).tolist()
    ends = plan.step.kv_lens.tolist()
    samples = plan.samples.tolist()
    return [
        _Constrained(places[i] - 1, seq, seq.constraint, ends[i] - seq.prompt_len)
        for i, seq in enumerate(plan.sequences)
        if samples[i] and seq.constraint is not None and seq.constraint.has_mask
    ]


def _is_late(each: _Constrained) -> bool:
    """Return whether a grammar's output must be steered to its end now, before `max_tokens` truncates it."""
    most = each.seq.max_tokens
    return most - each.num_before <= min(MAX_CLOSING, most // 8) and each.constraint.is_held


def _complete(each: _Constrained, words: Words) -> None:
    """Apply the rules beyond the grammar to a mask: bad words, forced tokens, thinking and `min_tokens`.

    If the mask then allows no token, records a failure in the constraint. `min_tokens` is ignored if the mask
    allows only tokens that end the output.
    """
    each.constraint.edit_mask(words)
    if not words.any():
        each.constraint.fail("the grammar allows no token here, not even the end")
    elif each.num_before < each.seq.request.sampling.min_tokens:
        others = words.copy()
        forbid(others, tuple(each.seq.stop_token_ids))
        if others.any():
            words[:] = others
