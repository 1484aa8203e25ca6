"""Prompt lookup: if a sequence's last tokens occur earlier, drafts the tokens that followed them there.

(Saxena, 2023, "Prompt Lookup Decoding".) Earlier occurrences are found with hash chains, as in LZ77
compressors:

    tokens   … a b c d … a b x … a b c      the last `min_ngram` tokens are a key;
                 └────────┴──────── ┘       each occurrence of a key links to the previous one

The drafter compares only the latest occurrences of the key and takes the one with the longest match. So the
cost of a step does not depend on the length of the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Annotated

import msgspec

from llmfw.core import ConfigError, Drafter, SequenceDrafter

MOST_PLACES = 16
"""Maximum number of occurrences of a key that `draft` compares. It starts with the latest."""

NOWHERE = -1


class PromptLookup(Drafter):
    """Drafts the tokens that followed the longest earlier match of the last tokens."""

    class Options(Drafter.Options, frozen=True):
        """Options of the drafter.

        Attributes:
            min_ngram: shortest match for which tokens are drafted.
            max_ngram: matches of at least this length are equally good; the latest of them is used.
        """

        min_ngram: Annotated[int, msgspec.Meta(ge=1)] = 3
        max_ngram: Annotated[int, msgspec.Meta(ge=1)] = 16

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.max_ngram < options.min_ngram:
            raise ConfigError(
                f"drafter.max_ngram is {options.max_ngram}; it must be at least drafter.min_ngram, which is "
                f"{options.min_ngram}"
            )

    def begin(self) -> SequenceDrafter:
        return Lookup(self.options.min_ngram, self.options.max_ngram)


class Lookup(SequenceDrafter):
    """The tokens of one sequence, and the indices at which each key ends.

    Args:
        min_ngram, max_ngram: as in `PromptLookup.Options`.
    """

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._min = min_ngram
        self._max = max_ngram
        self._tokens = array("q")
        self._last: dict[tuple[int, ...], int] = {}  # key → the last index at which it ends
        self._before = array("q")  # for each index, the previous one at which the same key ends

    def extend(self, token_ids: Sequence[int]) -> None:
        tokens, last, size = self._tokens, self._last, self._min
        first = len(tokens)
        tokens.extend(token_ids)
        for place in range(first, len(tokens)):
            if place < size - 1:
                self._before.append(NOWHERE)
                continue
            key = tuple(tokens[place - size + 1 : place + 1])
            self._before.append(last.get(key, NOWHERE))
            last[key] = place

    def draft(self, limit: int) -> Sequence[int]:
        tokens = self._tokens
        place = self._best_place()
        if place == NOWHERE:
            return ()
        found = tokens[place + 1 : place + 1 + limit].tolist()
        while len(found) < limit:  # the text ends here; continue as if it repeated itself
            found.append(found[len(found) - (len(tokens) - 1 - place)])
        return found

    def _best_place(self) -> int:
        """Return the index where the longest match ends, the latest in case of a tie; NOWHERE if none."""
        tokens = self._tokens
        if not tokens:
            return NOWHERE
        best, longest = NOWHERE, 0
        place = self._before[-1]
        for _ in range(MOST_PLACES):
            if place == NOWHERE or longest == self._max:
                break
            length = self._match_length(place)
            if length > longest:
                best, longest = place, length
            place = self._before[place]
        return best

    def _match_length(self, place: int) -> int:
        """Return the length of the match between the tokens up to index `place` and the last tokens.

        The length is at least `min_ngram`, because the caller found `place` by its key, and at most
        `max_ngram`.
        """
        tokens, length = self._tokens, self._min
        while length < self._max and length <= place and tokens[place - length] == tokens[-1 - length]:
            length += 1
        return length
