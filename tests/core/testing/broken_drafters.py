"""Drafters that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from llmfw.core.interfaces.drafter import DraftedRequest, Drafter, SequenceDrafter
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


class Continuing(Followers):
    """Drafts what followed in the first of other sequences in which something did, if not in its own."""

    def __init__(self, others: list[Followers]) -> None:
        super().__init__()
        self.others = others
        others.append(self)

    def draft(self, limit: int) -> Sequence[int]:
        known = [other.after for other in (self, *self.others) if self.last in other.after]
        follower = Followers()
        follower.last, follower.after = self.last, known[0] if known else {}
        return follower.draft(limit)


class ContinuesOthers(Broken):
    def __init__(self, options: Drafter.Options) -> None:
        super().__init__(options)
        self.all: list[Followers] = []

    def begin(self) -> SequenceDrafter:
        return Continuing(self.all)


class IgnoresSalt(Broken):
    """Continues the sequences of one tenant, whatever their salt is."""

    def __init__(self, options: Drafter.Options) -> None:
        super().__init__(options)
        self.tenants: dict[str, list[Followers]] = {}

    def begin_for(self, request: DraftedRequest) -> SequenceDrafter:
        return Continuing(self.tenants.setdefault(request.tenant, []))


class IgnoresTenant(Broken):
    def __init__(self, options: Drafter.Options) -> None:
        super().__init__(options)
        self.salts: dict[str, list[Followers]] = {}

    def begin_for(self, request: DraftedRequest) -> SequenceDrafter:
        return Continuing(self.salts.setdefault(request.cache_salt, []))


class FailsAfterFifty(Broken):
    """Drafts too many tokens from the 51st sequence on."""

    def __init__(self, options: Drafter.Options) -> None:
        super().__init__(options)
        self.count = 0

    def begin(self) -> SequenceDrafter:
        self.count += 1
        return Followers() if self.count <= 50 else IgnoresLimit.Sequence()


class TiresInSequences(Broken):
    """Drafts nothing from the 400th draft of a sequence on."""

    class Sequence(Followers):
        count = 0

        def draft(self, limit: int) -> Sequence[int]:
            self.count += 1
            return super().draft(limit) if self.count < 400 else ()


class CopiesEverything(Broken):
    """Copies the sequence in each step, without a line of Python for each token."""

    class Sequence(Followers):
        def __init__(self) -> None:
            super().__init__()
            self.tokens: tuple[int, ...] = ()

        def extend(self, token_ids: Sequence[int]) -> None:
            super().extend(token_ids)
            self.tokens = (*self.tokens, *token_ids)


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


class ForgetsTheNewest(Broken):
    """Drafts the second last follower of each token, and is meant to draft the last one."""

    class Sequence(Followers):
        def __init__(self) -> None:
            super().__init__()
            self.newest: dict[int, int] = {}

        def extend(self, token_ids: Sequence[int]) -> None:
            for token in token_ids:
                if self.last is not None:
                    self.after[self.last] = self.newest.get(self.last, token)
                    self.newest[self.last] = token
                self.last = token


class OfKind(DrafterTests):
    kind: type[Drafter]

    @pytest.fixture
    def drafter(self) -> Drafter:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def reference(self) -> Callable[[Sequence[int], int], Sequence[int]] | None:
        return last_followers if self.kind is ForgetsTheNewest else None


def last_followers(tokens: Sequence[int], limit: int) -> Sequence[int]:
    """Return what `Followers` drafts, by a search for each token."""
    found: list[int] = []
    last = tokens[-1]
    while len(found) < limit and last in tokens[:-1]:
        last = tokens[max(place for place, token in enumerate(tokens[:-1]) if token == last) + 1]
        found.append(last)
    return found


def test_class(kind: type[Drafter]) -> Any:
    """Return a test class for a drafter."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
