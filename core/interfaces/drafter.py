"""The interface of a drafter: what may come after the tokens of a sequence, as a guess that costs little.

The model computes all drafted tokens in one step, and those are kept that it would have sampled itself, one by one: a
draft decides how many tokens a step brings, and never which. See docs/speculation.md.

What a drafter does wrong costs no request: where it raises, or drafts what is no token, that is logged once with its
plugin's name, and generation goes on without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec


class SequenceDrafter(ABC):
    """Drafts for one sequence. It lives as long as its request runs."""

    @abstractmethod
    def extend(self, token_ids: Sequence[int]) -> None:
        """Take in the next tokens of the sequence, which stay: at first its prompt, then what was generated since."""

    @abstractmethod
    def draft(self, limit: int) -> Sequence[int]:
        """Return which tokens may come next, in order: at most `limit` (1 or more); none where there is no good guess.

        It changes nothing. Asked before each step in which there is room for drafts, for which the step waits: it
        must take no longer where the sequence is long.
        """


class Drafter(ABC):
    """Makes a `SequenceDrafter` for each sequence. Built once."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o drafter.key=value`. A drafter with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def begin(self) -> SequenceDrafter:
        """Return what drafts for one more sequence: from that one's tokens alone, as requests share no secrets."""
