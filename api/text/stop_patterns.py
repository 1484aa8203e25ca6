"""Ends a text at the first match of regular expressions, even if the match arrives in several pieces.

The patterns are compiled to one Glushkov automaton, whose set of states is stored in the bits of an integer.
The automaton reads each character once. The time per character is limited by the number of states, so no
pattern is slow. Python's own parser reads the patterns, and `re` matches the single characters. So classes,
escapes and flags have the same meaning as in `re`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

# The standard library's own parser and compiler; there are no public ones.
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_c: Any = importlib.import_module("re._constants")

MAX_STATES = 256
"""Maximum number of states of all patterns together.

A character or class takes one state, or one for each of the n repetitions if it is repeated by `{m,n}`.
"""

MAX_FOLDED = 1000
"""Maximum number of characters in a range of a class that ignores case.

Python's compiler visits each of these characters.
"""

MAX_CACHED = 4096  # characters whose states an automaton remembers

_PLACES = "an assertion of a place or of what stands around it"
_REFUSED = {
    _c.AT: _PLACES,
    _c.ASSERT: _PLACES,
    _c.ASSERT_NOT: _PLACES,
    _c.GROUPREF: "a back reference",
    _c.GROUPREF_EXISTS: "a back reference",
    _c.ATOMIC_GROUP: "an atomic group",
    _c.POSSESSIVE_REPEAT: "a possessive repetition",
}


class PatternError(ValueError):
    """A pattern cannot be used to end a text. The message gives the reason."""


class _Fragment(NamedTuple):
    """A fragment of a pattern, as in the construction of an automaton.

    Attributes:
        is_optional: whether it matches the empty text.
        first, last: states that can read its first and its last character.
    """

    is_optional: bool
    first: int
    last: int


_EMPTY = _Fragment(True, 0, 0)


class StopAutomaton:
    """An automaton that finds the first match of any of several patterns. Several searches may share it.

    Args:
        patterns: regular expressions, with the label to report for each.

    Attributes:
        first: states that read the first character of a match.
        ends: for each pattern, a pair: the states that read the last character of a match, and the label.

    Raises:
        PatternError: a pattern is invalid, matches the empty text, has too many states, or has features that
            an automaton cannot match.
    """

    def __init__(self, patterns: Sequence[tuple[str, str]]) -> None:
        self.first = 0
        self.ends: list[tuple[int, str]] = []
        self._leaves: list[Callable[[str], object]] = []
        self._follow: list[int] = []
        self._readers: dict[str, int] = {}
        self._compiled: dict[int, Callable[[str], object]] = {}  # by the identity of a node of the tree
        for pattern, label in patterns:
            fragment = self._parse(pattern)
            if fragment.is_optional:
                raise PatternError("it matches the empty text, so it would end every text at once")
            self.first |= fragment.first
            self.ends.append((fragment.last, label))

    def readers(self, char: str) -> int:
        """Return the states that can read the character `char`, one bit for each."""
        found = self._readers.get(char)
        if found is None:
            if len(self._readers) >= MAX_CACHED:
                self._readers.clear()
            found = sum(1 << i for i, matches in enumerate(self._leaves) if matches(char) is not None)
            self._readers[char] = found
        return found

    def after(self, states: int) -> int:
        """Return the states that can read the next character after `states` have read one."""
        found = 0
        for i in _bits(states):
            found |= self._follow[i]
        return found

    def _parse(self, pattern: str) -> _Fragment:
        try:
            tree = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(f"Python's re cannot read it: {error}") from error
        self._compiled.clear()  # the nodes of another tree may have had the same identities
        return self._sequence(tree, tree.state.flags)

    def _sequence(self, tree: Any, flags: int) -> _Fragment:
        fragment = _EMPTY
        for op, value in tree:
            fragment = self._joined(fragment, self._item(op, value, flags))
        return fragment

    def _item(self, op: Any, value: Any, flags: int) -> _Fragment:
        if op in (_c.LITERAL, _c.NOT_LITERAL, _c.IN, _c.ANY):
            return self._leaf(op, value, flags)
        if op is _c.SUBPATTERN:
            _, added, removed, tree = value
            return self._sequence(tree, (flags | added) & ~removed)
        if op is _c.BRANCH:
            fragments = [self._sequence(tree, flags) for tree in value[1]]
            return _Fragment(
                any(fragment.is_optional for fragment in fragments),
                _union(fragment.first for fragment in fragments),
                _union(fragment.last for fragment in fragments),
            )
        if op in (_c.MAX_REPEAT, _c.MIN_REPEAT):  # greedy and lazy repeats match the same texts
            least, most, tree = value
            return self._repeated(least, most, tree, flags)
        raise PatternError(f"it has {_REFUSED.get(op, str(op))}, which no automaton can match")

    def _leaf(self, op: Any, value: Any, flags: int) -> _Fragment:
        state = _parser.State()
        state.flags = flags
        number = len(self._leaves)
        if number >= MAX_STATES:
            raise PatternError(
                f"all patterns and stop strings together have more than {MAX_STATES} states: characters, times "
                "their repetitions"
            )
        if op is _c.IN and flags & re.IGNORECASE:
            _check_ranges(value)
        if id(value) not in self._compiled or op is not _c.IN:
            leaf = _compiler.compile(_parser.SubPattern(state, [(op, value)]), flags)
            self._compiled[id(value)] = leaf.fullmatch
        self._leaves.append(self._compiled[id(value)])
        self._follow.append(0)
        return _Fragment(False, 1 << number, 1 << number)

    def _repeated(self, least: int, most: int, tree: Any, flags: int) -> _Fragment:
        fragment = _EMPTY
        for i in range(max(least, 1) if most is _c.MAXREPEAT else most):
            each = self._sequence(tree, flags)
            if not each.first:
                return _EMPTY  # for any number of repeats
            if i + 1 >= least and most is _c.MAXREPEAT:
                self._link(each.last, each.first)
            fragment = self._joined(fragment, each if i < least else each._replace(is_optional=True))
        return fragment

    def _joined(self, one: _Fragment, other: _Fragment) -> _Fragment:
        self._link(one.last, other.first)
        return _Fragment(
            one.is_optional and other.is_optional,
            one.first | (other.first if one.is_optional else 0),
            other.last | (one.last if other.is_optional else 0),
        )

    def _link(self, last: int, first: int) -> None:
        for i in _bits(last) if first else ():
            self._follow[i] |= first


@lru_cache(maxsize=64)
def automaton_of(patterns: tuple[str, ...], stops: tuple[str, ...] = ()) -> StopAutomaton:
    """Return the automaton of patterns and of stop strings, which match literally."""
    return StopAutomaton([*((each, each) for each in patterns), *((re.escape(each), each) for each in stops)])


class StopPatterns:
    """Searches one text for matches as it arrives.

    Holds back only text that may still become a part of a match. The match that is complete first ends the
    text. If two are complete at the same character, the longer one ends it.

    Args:
        automaton: automaton of the patterns; may be shared.
        keep: whether the match is part of the text.
    """

    def __init__(self, automaton: StopAutomaton, *, keep: bool = False) -> None:
        self._automaton = automaton
        self._keep = keep
        self._held = ""
        self._num_read = 0
        # Starts of possible matches, ascending, each with the states that can read the next character.
        # If several starts reach a state, only the earliest keeps it, because its match is the longest.
        self._open: list[tuple[int, int]] = []

    def feed(self, text: str) -> tuple[str, str | None]:
        """Add text; return the text to send on, and the label of the pattern that ended it, if any."""
        begin = self._num_read - len(self._held)  # of the held text
        for i, char in enumerate(text):
            found = self._read(char)
            if found is not None:
                whole = self._held + text[: i + 1]
                self._held = ""
                return whole if self._keep else whole[: found[0] - begin], found[1]
        whole = self._held + text
        cut = self._open[0][0] - begin if self._open else len(whole)
        self._held = whole[cut:]
        return whole[:cut], None

    def finish(self) -> str:
        """Return the held-back text, which did not become a match."""
        return self._held

    def _read(self, char: str) -> tuple[int, str] | None:
        """Read a character. If it completes a match, return the start and the label of the match."""
        automaton = self._automaton
        readers = automaton.readers(char)
        taken, still_open = 0, []
        for start, states in (*self._open, (self._num_read, automaton.first)):
            reading = states & readers
            if not reading:
                continue
            for last, label in automaton.ends:
                if reading & last:
                    return start, label
            after = automaton.after(reading) & ~taken
            if after:
                taken |= after
                still_open.append((start, after))
        self._open = still_open
        self._num_read += 1
        return None


def _check_ranges(members: Any) -> None:
    for op, value in members:
        if op is _c.RANGE and value[1] - value[0] >= MAX_FOLDED:
            raise PatternError(
                f"a class that ignores case has a range of {value[1] - value[0] + 1} characters; at most "
                f"{MAX_FOLDED} are allowed"
            )


def _bits(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def _union(sets: Iterator[int]) -> int:
    found = 0
    for each in sets:
        found |= each
    return found
