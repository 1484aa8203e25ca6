"""Drafters that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from llmfw.core.interfaces.drafter import Drafter, SequenceDrafter
from llmfw.core.testing import DrafterTests


class Followers(SequenceDrafter):
    """Drafts what came after each token last."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.after: dict[int, int] = {}

    def extend(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            if self.last is not None:
                self.after[self.last] = token
            self.last = token

    def draft(self, limit: int) -> Sequence[int]:
        found: list[int] = []
        token = self.last
        while len(found) < limit and token in self.after:
            token = self.after[token]
            found.append(token)
        return found


class Broken(Drafter):
    """Begins sequences of its own nested class."""

    Sequence: ClassVar[type[SequenceDrafter]] = Followers

    def begin(self) -> SequenceDrafter:
        return self.Sequence()


class IgnoresLimit(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            return super().draft(limit + 1)


class DraftsWithoutEnd(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            return itertools.repeat(5)  # type: ignore[return-value]


class DraftsText(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            return [str(token) for token in super().draft(limit)]  # type: ignore[misc]


class DraftsInvalidTokens(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            return [-1] * limit


class RequiresTwoTokens(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            return super().draft(limit) if self.after else [self.after[-1]]


class DependsOnChunking(Broken):
    class Sequence(Followers):
        def extend(self, token_ids: Sequence[int]) -> None:
            self.last = None
            super().extend(token_ids)


class AcceptsItsOwnDraft(Broken):
    class Sequence(Followers):
        def draft(self, limit: int) -> Sequence[int]:
            found = super().draft(limit)
            self.last = found[-1] if found else self.last
            return found


class NotDeterministic(Broken):
    class Sequence(Followers):
        turn = itertools.count()

        def draft(self, limit: int) -> Sequence[int]:
            return super().draft(limit)[next(self.turn) % 2 :]


class KeepsInputList(Broken):
    class Sequence(Followers):
        def __init__(self) -> None:
            super().__init__()
            self.pieces: list[Sequence[int]] = []

        def extend(self, token_ids: Sequence[int]) -> None:
            self.pieces.append(token_ids)

        def draft(self, limit: int) -> Sequence[int]:
            follower = Followers()
            for piece in self.pieces:
                follower.extend(piece)
            return follower.draft(limit)


class SortsInputList(Broken):
    class Sequence(Followers):
        def extend(self, token_ids: Sequence[int]) -> None:
            super().extend(list(token_ids))
            token_ids.sort()  # type: ignore[attr-defined]


class SharesSequences(Broken):
    shared: ClassVar[dict[int, int]] = {}

    class Sequence(Followers):
        def __init__(self) -> None:
            super().__init__()
            self.after = SharesSequences.shared


class RereadsEverything(Broken):
    class Sequence(Followers):
        def __init__(self) -> None:
            super().__init__()
            self.tokens: list[int] = []

        def extend(self, token_ids: Sequence[int]) -> None:
            self.tokens += token_ids

        def draft(self, limit: int) -> Sequence[int]:
            follower = Followers()
            follower.extend(self.tokens)
            return follower.draft(limit)


class OfKind(DrafterTests):
    kind: type[Drafter]

    @pytest.fixture
    def drafter(self) -> Drafter:
        return self.kind(self.kind.Options())


def test_class(kind: type[Drafter]) -> Any:
    """Return a test class for a drafter."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
