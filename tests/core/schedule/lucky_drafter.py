"""A drafter that knows what the hashed model says, and is right as often as it is told to be."""

from __future__ import annotations

import random
from collections.abc import Sequence

from llmfw.core.interfaces.drafter import Drafter, SequenceDrafter
from llmfw.core.schedule.isolated_drafter import IsolatedDrafter
from llmfw.core.schedule.speculation import Speculation

from .driver import VOCAB_SIZE
from .hashed_model import prefix_hashes


class LuckyDrafter(Drafter):
    """Each drafted token is right with a chance, 0 to 1, and each draft shorter than it may be with another."""

    def __init__(self, rng: random.Random, chance: float, shy: float) -> None:
        super().__init__(self.Options())
        self.rng = rng
        self.chance = chance
        self.shy = shy

    def begin(self) -> SequenceDrafter:
        return LuckySequence(self)


class LuckySequence(SequenceDrafter):
    def __init__(self, drafter: LuckyDrafter) -> None:
        self.drafter = drafter
        self.tokens: list[int] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        self.tokens += token_ids

    def draft(self, limit: int) -> Sequence[int]:
        rng, tokens = self.drafter.rng, self.tokens.copy()
        for _ in range(rng.randrange(limit + 1) if rng.random() < self.drafter.shy else limit):
            right = prefix_hashes(tokens)[-1] % VOCAB_SIZE
            is_right = rng.random() < self.drafter.chance
            tokens.append(right if is_right else (right + 1) % VOCAB_SIZE)
        return tokens[len(self.tokens) :]


def speculation(
    rng: random.Random, chance: float = 1.0, *, shy: float = 0.0, max_draft: int = 4, max_tokens: int = 16
) -> Speculation:
    """Return what adds such drafts."""
    drafter = IsolatedDrafter(LuckyDrafter(rng, chance, shy), VOCAB_SIZE)
    return Speculation(drafter, max_draft=max_draft, max_tokens=max_tokens)
