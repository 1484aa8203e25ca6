"""A reader for text that arrives in pieces. Parsers that use it are written as if the whole text were there.

Such a parser is a generator. It yields deltas, or None if it needs more text, and continues once more text
has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeVar

D = TypeVar("D")
Waiting = Generator[None, None, D]
"""A generator that yields only None, while it waits for more text, and finally returns a D."""

_WORD = re.compile(r"[\w.\-]*")


class Reader:
    """The text that has arrived and has not been taken yet.

    How the text is split into pieces does not affect the result of any method: each waits until later text
    cannot change its result.

    Attributes:
        text: text that has not been taken yet.
        at: index in `text` up to which it has been read; the reader's position.
        ended: whether all text has arrived.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def take(self, length: int) -> str:
        """Remove and return the first `length` characters; reset the position to the start of the rest."""
        taken, self.text = self.text[:length], self.text[length:]
        self.at = 0
        return taken

    def literal(self, *texts: str) -> Waiting[str | None]:
        """Read one of these texts and return it; None if none follows.

        No text must be a prefix of another.
        """
        while True:
            for text in texts:
                if self.text.startswith(text, self.at):
                    self.at += len(text)
                    return text
            if self.ended or not self._may_become(texts):
                return None
            yield None

    def space(self) -> Waiting[None]:
        """Read white space, if any."""
        while True:
            rest = self.text[self.at :].lstrip()
            self.at = len(self.text) - len(rest)
            if rest or self.ended:
                return
            yield None

    def word(self) -> Waiting[str]:
        """Read and return letters, digits, `_`, `-` and `.`, such as a tool's name; "" if there are none."""
        while True:
            match = _WORD.match(self.text, self.at)
            assert match is not None
            if match.end() < len(self.text) or self.ended:
                self.at = match.end()
                return match[0]
            yield None

    def find(self, *texts: str) -> Waiting[int]:
        """Return the index at which the first of these texts starts; the end of all text if none occurs."""
        while True:
            places = [place for text in texts if (place := self.text.find(text, self.at)) >= 0]
            if places:
                return min(places)
            if self.ended:
                return len(self.text)
            yield None

    def is_cut_off(self, *texts: str) -> bool:
        """Return whether all text ends at the position, or within one of these texts that starts there."""
        return self.ended and self._may_become(texts)

    def _may_become(self, texts: tuple[str, ...]) -> bool:
        rest = self.text[self.at :]
        return any(text.startswith(rest) for text in texts)


def run(steps: Generator[D | None, None, None]) -> list[D]:
    """Run a parser until it needs more text; return its deltas."""
    deltas: list[D] = []
    for step in steps:
        if step is None:
            break
        deltas.append(step)
    return deltas
