"""The interface of a drafter, which cheaply guesses the next tokens of a sequence.

The model computes all drafted tokens in one step, and the engine keeps the ones that the model would have sampled itself,
one by one: drafts change how many tokens a step adds, but never which ones. See docs/speculation.md.

A faulty drafter fails no request: if it raises, or drafts an invalid token, llmfw logs that once with its plugin's name,
and generation goes on without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec


class SequenceDrafter(ABC):
    """Drafts for one sequence, for as long as its request runs."""

    @abstractmethod
    def extend(self, token_ids: Sequence[int]) -> None:
        """Add the next tokens of the sequence, which are final: first its prompt, then the tokens generated since."""

    @abstractmethod
    def draft(self, limit: int) -> Sequence[int]:
        """Return the guessed next tokens, in order: at most `limit` (1 or more), or none without a good guess.

        Must change nothing. Called before each step that has room for drafts, and the step waits for it, so it must not
        take longer for longer sequences.
        """


class Drafter(ABC):
    """Creates a `SequenceDrafter` for each sequence. Built once."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o drafter.key=value`. A drafter with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def begin(self) -> SequenceDrafter:
        """Return a drafter for one more sequence. It may use only that sequence's tokens: requests share no data."""
