"""A drafter that was told what requests generate, and drafts that, with a mistake here and there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from llmfw.core.interfaces.drafter import Drafter, SequenceDrafter


class KnowingDrafter(Drafter):
    """Goes by the first of the known sequences that begins as this one does.

    Attributes:
        known: prompts with their outputs.
        mistakes: share of drafted tokens that are replaced by the token before.
        raises_at: a sequence of so many tokens makes it raise.
    """

    known: ClassVar[list[list[int]]] = []
    mistakes: ClassVar[float] = 0.0
    raises_at: ClassVar[int | None] = None

    def begin(self) -> SequenceDrafter:
        return KnowingSequence(self)


class KnowingSequence(SequenceDrafter):
    def __init__(self, drafter: KnowingDrafter) -> None:
        self.drafter = drafter
        self.tokens: list[int] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        self.tokens += token_ids

    def draft(self, limit: int) -> Sequence[int]:
        num = len(self.tokens)
        if self.drafter.raises_at is not None and num >= self.drafter.raises_at:
            raise OSError("no disk")
        found = next((each for each in self.drafter.known if each[:num] == self.tokens), self.tokens)
        rng = random.Random(num)
        right = zip(found[num : num + limit], found[num - 1 :], strict=False)
        return [before if rng.random() < self.drafter.mistakes else token for token, before in right]
