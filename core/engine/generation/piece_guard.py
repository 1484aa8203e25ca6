"""Keeps a long prompt from holding up the sequences that decode beside it: how much of it may be in one step.

A prompt that does not fit into a step is computed in pieces, and each sequence that decodes waits for its next token
until the step with the piece has ended. How large a piece may be follows from this machine's own times: from what steps
without prompt tokens take, and from what pieces have added to them, by how much of the prompt was there already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low

from llmfw.core.base.errors import ConfigError
from llmfw.core.schedule.plan import BatchPlan

LEAST_PIECE = 8  # so many tokens: a long prompt goes on, however slow the machine is
MOST_GROWTH = 2  # a piece is at most so many times as large as those that were measured
ORDINARY_EVERY = 16  # after so many pieces one step goes without, to see what it takes now
NUM_REMEMBERED = 5  # measured steps of a kind, whose median counts
WORTH = 3  # a token of a piece takes at most so many times what one takes in a whole step of them
WHOLE = 64  # tokens in a step, from which on it counts as one
CONTEXT_UNIT = 1024  # contexts are told apart from so many tokens on, by powers of two


class PieceGuard:
    """Says how many tokens of long prompts a step may hold in which other sequences decode.

    Args:
        budget: most prompt tokens in one step, of which long prompts have half.
        stretch: a step with a piece may take so many times what one without prompt tokens takes; 0: any time.
        least: a piece has so many tokens even if it takes longer.

    Raises:
        ConfigError: the stretch is below 1.
    """

    def __init__(self, budget: int, *, stretch: float, least: int = LEAST_PIECE) -> None:
        if stretch and not stretch >= 1:
            raise ConfigError(f"--prefill-stretch is {stretch}; it must be at least 1, or 0 for no bound")
        self._most = max(1, budget // 2)  # the other half is for other prompts: they go past a long one
        self._stretch = stretch
        self._least = min(least, self._most)
        self._ordinary: dict[int, deque[float]] = {}  # seconds, by the bits of the number of sequences
        self._pieces: dict[int, deque[tuple[int, float]]] = {}  # sizes and seconds a token, by the context
        self._whole: dict[int, float] = {}  # seconds a token where nothing decodes, by the context
        self._num_decoding = 1
        self._context = 0
        self._num_since_ordinary = 0
        self._num_cut = 0

    def largest(self, num_waiting: int = 0) -> int | None:
        """Return how many tokens of long prompts the next step may hold; None: any number. Asked once for each step.

        Args:
            num_waiting: requests that wait. For each prompt that waits or is computed a step may take so much longer:
                where many do, it is throughput that they need, and that those who stream gave up by coming together.
        """
        if not self._stretch:
            return None
        ordinary = self._ordinary.get(self._num_decoding.bit_length())
        self._num_since_ordinary += 1
        if self._num_since_ordinary > (ORDINARY_EVERY if ordinary else 1):
            self._num_since_ordinary = 0
            return 0
        level = _level(self._context)
        known = self._pieces.get(level) or self._pieces.get(level - 1)
        if not ordinary or not known:
            return self._least
        allowed = (self._stretch - 1) * median_low(ordinary) * max(1, self._num_cut + num_waiting)
        grown = MOST_GROWTH * max(size for size, _ in known)
        size = max(allowed / max(_seconds_each(known), 1e-9), self._worth(level, known))
        return max(self._least, int(min(size, grown, self._most)))

    def learn(self, plan: BatchPlan, seconds: float) -> None:
        """Take note of what a step took, without waiting for the one before it."""
        prompts = plan.prefills
        num_decoding = len(plan.sequences) - len(prompts)
        self._num_decoding = max(1, plan.num_sampling)
        cut = [p for p in prompts if not p.samples]
        self._num_cut = len(cut)
        if cut:
            self._context = max(p.start for p in cut)
        if not num_decoding:
            if len(prompts) == len(cut) == 1 and cut[0].count >= WHOLE:
                self._whole[_level(cut[0].start)] = seconds / cut[0].count
            return
        ordinary = self._ordinary.setdefault(num_decoding.bit_length(), deque(maxlen=NUM_REMEMBERED))
        if not prompts:
            ordinary.append(seconds)
        elif not ordinary:
            return
        elif seconds < (usual := median_low(ordinary)):  # what is known is old: prompts make no step faster
            ordinary.clear()
            self._num_since_ordinary = ORDINARY_EVERY
        elif len(prompts) == len(cut) == 1:
            each = (seconds - usual) / cut[0].count
            pieces = self._pieces.setdefault(_level(cut[0].start), deque(maxlen=NUM_REMEMBERED))
            pieces.append((cut[0].count, each))

    def _worth(self, level: int, known: Sequence[tuple[int, float]]) -> float:
        """Return from which size on a piece is worth its step: what it costs to have one at all is shared by its tokens.

        That is the least that was measured: what disturbs a piece from outside must not make the next one larger.
        """
        whole = self._whole.get(level) or self._whole.get(level - 1)
        if whole is None:
            return 0.0
        return min(size * (each - whole) for size, each in known) / ((WORTH - 1) * whole)


def _seconds_each(pieces: Sequence[tuple[int, float]]) -> float:
    """Return what a token of a piece takes. Once it is disturbed from outside, twice it has become so much."""
    each = [seconds for _, seconds in pieces]
    return max(median_low(each), min(each[-2:]))


def _level(context: int) -> int:
    return (context // CONTEXT_UNIT).bit_length()
