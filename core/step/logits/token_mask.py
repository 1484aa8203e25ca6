"""Which tokens may be sampled next: masks for the constrained rows of a step, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.interfaces.grammar import Grammar
from llmfw.core.schedule.constraint import Constraint, forbid
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence

from ..device.staging import Staging

MAX_CLOSING = 256
"""So many tokens before `max_tokens`, or an eighth of these, a grammar's output begins to be brought to its end."""

SUSPICIOUS_S = 0.025
"""Where the masks of several grammars take longer together, they are then made one by one, and timed."""

Words = npt.NDArray[np.int32]
FillMasks = Callable[[Sequence[Grammar], Words], None]


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """The masks of a step. A mask holds `min_tokens` too: the end is in it only where it may, or has to, come now.

    Attributes:
        places: whose they are, as places among the sequences that sample: R of them.
        words: bit t % 32 of word t // 32 is 1 if token t is allowed: [R, ceil(vocab / 32)].
    """

    places: list[int]
    words: Words

    def apply(self, logits: torch.Tensor, staging: Staging) -> None:
        """Set the logits of forbidden tokens to minus infinity, in place: [S, vocab]."""
        places, words = staging.send(np.array(self.places, dtype=np.int64), self.words)
        bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
        forbidden = bits.flatten(1)[:, : logits.shape[-1]] == 0
        logits[places] = logits[places].masked_fill(forbidden, float("-inf"))


class MaskFiller:
    """Makes the masks of a step, in a thread of its own if wished.

    Args:
        vocab_size: width of the logits.
        fill_masks, hasten: of the grammar backend.
    """

    def __init__(
        self, vocab_size: int, fill_masks: FillMasks, hasten: Callable[[Words], bool] = lambda _: False
    ) -> None:
        self._num_words = -(-vocab_size // 32)
        self._fill_masks = fill_masks
        self._hasten = hasten
        self._thread: ThreadPoolExecutor | None = None
        self._is_suspicious = False  # the last masks of several grammars took long

    def start(self, plan: BatchPlan) -> Callable[[], TokenMasks | None]:
        """Begin with the masks of a plan; return the function that waits for them."""
        constrained = _constrained(plan)
        if not constrained:
            return lambda: None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llmfw-masks")
        return self._thread.submit(self._make, constrained).result

    def make(self, plan: BatchPlan) -> TokenMasks | None:
        """Return the masks of a plan, or None if no sequence has any."""
        constrained = _constrained(plan)
        return self._make(constrained) if constrained else None

    def _make(self, constrained: list[tuple[int, PlannedSequence]]) -> TokenMasks | None:
        """A sequence without any mask is left out; its constraint knows why, and will not accept its next token."""
        words = np.zeros((len(constrained), self._num_words), dtype=np.int32)
        self._ask_grammars([p for _, p in constrained], words)
        for (_, p), row in zip(constrained, words, strict=True):
            assert p.seq.constraint is not None
            if _is_late(p):
                self._bring_to_end(p.seq.constraint, row)
            _complete(p, row)
        kept = np.flatnonzero(words.any(axis=1))
        return TokenMasks([constrained[i][0] for i in kept], words[kept]) if len(kept) else None

    def _bring_to_end(self, constraint: Constraint, row: Words) -> None:
        try:
            if self._hasten(row):
                constraint.hasten()
        except Exception as error:  # noqa: BLE001 - as in `_ask_grammars`
            constraint.fail(error)

    def _ask_grammars(self, planned: list[PlannedSequence], words: Words) -> None:
        asked = []
        grammars = []
        for i, p in enumerate(planned):
            assert p.seq.constraint is not None
            grammar = p.seq.constraint.grammar_to_ask
            if grammar is not None:
                asked.append(i)
                grammars.append(grammar)
        if not grammars:
            return
        if len(grammars) > 1 and self._is_suspicious:
            self._ask_each(planned, asked, words)
            return
        begun, cpu_begun = perf_counter(), thread_time()
        filled = np.zeros((len(asked), self._num_words), dtype=np.int32)
        try:
            self._fill_masks(grammars, filled)
        except Exception as error:  # noqa: BLE001 - a plugin's: those of one sequence must not end the engine for all
            if len(planned) > 1:
                for i, p in enumerate(planned):
                    self._ask_grammars([p], words[i : i + 1])
                return
            assert planned[0].seq.constraint is not None
            planned[0].seq.constraint.fail(error)
        words[asked] = filled
        if len(grammars) == 1:
            self._constraint(planned[asked[0]]).charge_mask(thread_time() - cpu_begun)
        else:
            self._is_suspicious = perf_counter() - begun > SUSPICIOUS_S

    def _ask_each(self, planned: list[PlannedSequence], asked: list[int], words: Words) -> None:
        """Ask grammars one by one, so that each is charged with its own time."""
        begun = perf_counter()
        self._is_suspicious = False
        for i in asked:
            self._ask_grammars([planned[i]], words[i : i + 1])
        self._is_suspicious = perf_counter() - begun > SUSPICIOUS_S

    def _constraint(self, planned: PlannedSequence) -> Constraint:
        assert planned.seq.constraint is not None
        return planned.seq.constraint


def _constrained(plan: BatchPlan) -> list[tuple[int, PlannedSequence]]:
    """Return the sequences that have a mask, with their places among those that sample."""
    if all(seq.constraint is None for seq in plan.sequences):
        return []
    return [
        (place, p)
        for place, p in enumerate(plan.sampled)
        if p.seq.constraint is not None and p.seq.constraint.has_mask
    ]


def _is_late(planned: PlannedSequence) -> bool:
    """Return whether a grammar's output has to come to its end now, not to be cut by `max_tokens`."""
    seq = planned.seq
    assert seq.constraint is not None
    num_left = seq.max_tokens - (planned.end - seq.prompt_len)
    return num_left <= min(MAX_CLOSING, seq.max_tokens // 8) and seq.constraint.is_held


def _complete(planned: PlannedSequence, words: Words) -> None:
    """Add to a mask what the grammar does not know: forced tokens, thinking, min_tokens."""
    seq, constraint = planned.seq, planned.seq.constraint
    assert constraint is not None
    constraint.edit_mask(words)
    if not words.any():
        constraint.fail("the grammar allows no token here, not even the end")
    elif planned.end - seq.prompt_len < seq.request.sampling.min_tokens:
        others = words.copy()
        forbid(others, tuple(seq.stop_token_ids))
        if others.any():
            words[:] = others
