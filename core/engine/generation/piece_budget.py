"""Limits the piece of a long prompt in one step, so that the step does not delay decoding sequences for too
long.

A prompt that does not fit into a step is computed in pieces, and each decoding sequence waits for its next token until
the step with the piece has ended. The size of a piece follows from measured times: the time of steps without prompt
tokens, and the time that earlier pieces added to them, by the length of the prompt already computed.

The same holds for prompts of any length whose log probabilities are requested. A token of such a prompt takes
longer, because its logits are computed. So its times are measured separately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low

from llmfw.core.base.errors import ConfigError
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence

LEAST_PIECE = 8  # tokens in the smallest piece, so that a long prompt progresses even on a slow machine
MOST_GROWTH = 2  # a piece is at most this many times as large as the largest measured piece
ORDINARY_EVERY = 16  # number of pieces after which one step has no piece, to measure its time again
NUM_REMEMBERED = 5  # number of measured steps of a kind in the median
WORTH = 3  # maximum time per token of a piece, as a multiple of the time in a step with only prompts
WHOLE = 64  # minimum number of prompt tokens for a step to be measured as one with only prompt tokens
CONTEXT_UNIT = 1024  # contexts are grouped by powers of two, starting at this many tokens
SCORE_COST = 2.0  # cost of a scored prompt token, as a multiple of another's, until both are measured
MOST_SCORE_COST = 16.0

Kind = tuple[int, bool]
"""A group of pieces: the level of their context, and whether the prompt's log probabilities are requested."""


class PieceBudget:
    """Limits the tokens of long and of scored prompts in a step in which other sequences decode.

    Args:
        budget: maximum number of prompt tokens in one step; long prompts may take half of them.
        stretch: time limit of a step with a piece, as a multiple of the time of a step without prompt tokens;
            0: no limit.
        least: minimum number of tokens in a piece, even if the step then exceeds the time limit.

    Raises:
        ConfigError: the stretch is below 1.
    """

    def __init__(self, budget: int, *, stretch: float, least: int = LEAST_PIECE) -> None:
        if stretch and not stretch >= 1:
            raise ConfigError(f"--prefill-stretch is {stretch}; it must be at least 1, or 0 for no bound")
        self._most = max(1, budget // 2)  # the other half is for other prompts, which overtake a long one
        self._stretch = stretch
        self._least = min(least, self._most)
        self._ordinary: dict[int, deque[float]] = {}  # seconds, by the bits of the number of sequences
        self._pieces: dict[Kind, deque[tuple[int, float]]] = {}  # sizes and seconds per token
        self._whole: dict[Kind, float] = {}  # seconds per token in steps in which nothing decodes
        self._rates: dict[
            bool, deque[float]
        ] = {}  # seconds per token of such steps, of scored prompts and of others
        self._num_decoding = 1
        self._context = 0
        self._is_scored = False
        self._num_since_ordinary = 0
        self._num_cut = 0

    def largest(self, num_waiting: int = 0) -> int | None:
        """Return the token limit for long prompts in the next step; None: no limit. Call this once per step.

        Args:
            num_waiting: number of waiting requests whose prompts are not scored. The extra time of a step is
                multiplied by the number of prompts that wait or are cut, because with many prompts,
                throughput matters more than the pace of the streams.
        """
        if not self._stretch:
            return None
        ordinary = self._ordinary.get(self._num_decoding.bit_length())
        self._num_since_ordinary += 1
        if self._num_since_ordinary > (ORDINARY_EVERY if ordinary else 1):
            self._num_since_ordinary = 0
            return 0
        level = _level(self._context)
        known = self._pieces.get((level, self._is_scored)) or self._pieces.get((level - 1, self._is_scored))
        if not ordinary or not known:
            return self._least
        allowed = (self._stretch - 1) * median_low(ordinary) * max(1, self._num_cut + num_waiting)
        grown = MOST_GROWTH * max(size for size, _ in known)
        size = max(allowed / max(_seconds_each(known), 1e-9), self._worth(level, known))
        return max(self._least, int(min(size, grown, self._most)))

    @property
    def score_cost(self) -> float:
        """Number of tokens that a scored prompt token counts as, by the times of steps in which nothing decodes."""
        plain, scored = self._rates.get(False), self._rates.get(True)
        if not plain or not scored:
            return SCORE_COST
        return min(max(median_low(scored) / median_low(plain), 1.0), MOST_SCORE_COST)

    def learn(self, plan: BatchPlan, seconds: float) -> None:
        """Record the duration of a step, without its wait for the previous step."""
        prompts = plan.prefills
        num_decoding = len(plan.sequences) - len(prompts)
        self._num_decoding = max(1, plan.num_sampling)
        if not prompts:
            self._num_cut = 0
            self._ordinary_of(num_decoding).append(seconds)
            return
        scored = [p for p in prompts if _is_scored(p)]
        cut = scored or [p for p in prompts if not p.samples]
        self._num_cut = 0 if scored else len(cut)
        if cut:
            self._context = max(p.start for p in cut)
            self._is_scored = bool(scored)
        count = sum(p.count for p in cut)
        kind = _level(self._context), self._is_scored
        is_clear = len(prompts) == len(cut) and (len(cut) == 1 or bool(scored))
        if not num_decoding:
            self._learn_rate(prompts, scored, seconds)
            if is_clear and count >= WHOLE:
                self._whole[kind] = seconds / count
            return
        ordinary = self._ordinary_of(num_decoding)
        if not ordinary:
            return
        if seconds < (usual := median_low(ordinary)):  # outdated: prompts make no step faster
            ordinary.clear()
            self._num_since_ordinary = ORDINARY_EVERY
        elif is_clear:
            pieces = self._pieces.setdefault(kind, deque(maxlen=NUM_REMEMBERED))
            pieces.append((count, (seconds - usual) / count))

    def _ordinary_of(self, num_decoding: int) -> deque[float]:
        """Return the times of steps without prompt tokens that had about this many sequences."""
        bits = num_decoding.bit_length()
        found = self._ordinary.get(bits)
        if found is None:
            found = self._ordinary[bits] = deque(maxlen=NUM_REMEMBERED)
        return found

    def _learn_rate(
        self, prompts: Sequence[PlannedSequence], scored: Sequence[PlannedSequence], seconds: float
    ) -> None:
        count = sum(p.count for p in prompts)
        if count >= WHOLE and len(scored) in (0, len(prompts)):
            rates = self._rates.setdefault(bool(scored), deque(maxlen=NUM_REMEMBERED))
            rates.append(seconds / count)

    def _worth(self, level: int, known: Sequence[tuple[int, float]]) -> float:
        """Return the smallest size of a piece whose time per token, including its fixed cost, is within
        WORTH.

        Uses the lowest measured cost, so that a disturbance from outside does not make the next piece larger.
        """
        whole = self._whole.get((level, self._is_scored)) or self._whole.get((level - 1, self._is_scored))
        if whole is None:
            return 0.0
        return min(size * (each - whole) for size, each in known) / ((WORTH - 1) * whole)


def _seconds_each(pieces: Sequence[tuple[int, float]]) -> float:
    """Return the typical time per token of a piece.

    A single slow piece has no effect; two in a row raise the time.
    """
    each = [seconds for _, seconds in pieces]
    return max(median_low(each), min(each[-2:]))


def _is_scored(part: PlannedSequence) -> bool:
    return part.seq.prompt_logprobs is not None and part.start < part.seq.prompt_len


def _level(context: int) -> int:
    return (context // CONTEXT_UNIT).bit_length()
