"""Stop conditions of a text other than stop strings, and whether the text includes the stop that ended it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from llmfw.core.base.errors import RequestError

from .sampling import MAX_STOP_LENGTH
from .stop_patterns import PatternError, StopPatterns, automaton_of
from .stop_strings import StopStrings
from .threads import TextThreads

MAX_PATTERNS = 16


class StopFields(Protocol):
    """The fields of a request body that `stops_of` reads."""

    stop_regex: str | list[str] | None
    include_stop_str_in_output: bool | None
    no_stop_trim: bool | None
    skip_special_tokens: bool | None


class Stops(msgspec.Struct, frozen=True, kw_only=True):
    """Stop conditions of a text other than stop strings.

    Attributes:
        patterns: regular expressions. The text ends at the first match.
        keep: whether the text includes the stop string, the match or the token that ended it.
        silent: end tokens that are never part of the text.
    """

    patterns: tuple[str, ...] = ()
    keep: bool = False
    silent: Collection[int] = ()

    def search(self, stop: Sequence[str]) -> StopStrings | StopPatterns | None:
        """Return a new search of one text for the patterns and for stop strings; None if there are none."""
        if self.patterns:
            return StopPatterns(automaton_of(self.patterns, tuple(stop)), keep=self.keep)
        return StopStrings(stop, keep=self.keep) if stop else None


async def stops_of(
    body: StopFields, stop: Sequence[str], eos_token_ids: Collection[int], threads: TextThreads
) -> Stops:
    """Return the stops of a request body. Compiles patterns in a thread, because that takes milliseconds.

    Args:
        stop: the request's stop strings.

    Raises:
        RequestError: there are too many patterns, or a pattern is too long or cannot be compiled.
    """
    given = body.stop_regex
    patterns = (given,) if isinstance(given, str) else tuple(given or ())
    if len(patterns) > MAX_PATTERNS:
        raise RequestError(
            f"stop_regex has {len(patterns)} patterns; at most {MAX_PATTERNS} are allowed", param="stop_regex"
        )
    for i, pattern in enumerate(patterns):
        name = "stop_regex" if isinstance(given, str) else f"stop_regex[{i}]"
        if len(pattern) > MAX_STOP_LENGTH:
            raise RequestError(
                f"{name} has {len(pattern)} characters; at most {MAX_STOP_LENGTH} are allowed", param=name
            )
        await _compile((pattern,), (), name, threads)
    if patterns:
        await _compile(patterns, tuple(stop), "stop_regex", threads)
    keeps_special = body.skip_special_tokens is False
    return Stops(
        patterns=patterns,
        keep=bool(body.include_stop_str_in_output or body.no_stop_trim),
        silent=() if keeps_special else eos_token_ids,
    )


async def _compile(patterns: tuple[str, ...], stop: tuple[str, ...], name: str, threads: TextThreads) -> None:
    try:
        await threads.run(sum(map(len, patterns)), automaton_of, patterns, stop)
    except PatternError as error:
        shown = patterns[0] if len(patterns) == 1 else list(patterns)
        raise RequestError(f"{name} is {shown!r}: {error}", param=name) from error
