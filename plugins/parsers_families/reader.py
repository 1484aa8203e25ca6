"""Text that arrives in pieces, read as if it were whole: a parser that needs more text stops and continues later.

A parser is written as a generator of steps. A step is a delta, or None if the parser needs more text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeVar

D = TypeVar("D")
Waiting = Generator[None, None, D]
"""Steps that emit nothing and finally return a D."""

_WORD = re.compile(r"[\w.\-]*")


class Reader:
    """The text that has arrived and was not taken yet.

    The result of a method does not depend on how the text was cut: it waits until later text cannot change its result.

    Attributes:
        text: the text that was not taken yet.
        at: the place in `text` up to which it has been read.
        ended: whether all text has arrived.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def take(self, length: int) -> str:
        """Take the first `length` characters; the reader's place is then the start of the rest."""
        taken, self.text = self.text[:length], self.text[length:]
        self.at = 0
        return taken

    def literal(self, *texts: str) -> Waiting[str | None]:
        """Read one of these texts and return it; None if none of them is there. No text may be a prefix of another."""
        while True:
            for text in texts:
                if self.text.startswith(text, self.at):
                    self.at += len(text)
                    return text
            if self.ended or not self._may_become(texts):
                return None
            yield None

    def space(self) -> Waiting[None]:
        """Read white space."""
        while True:
            rest = self.text[self.at :].lstrip()
            self.at = len(self.text) - len(rest)
            if rest or self.ended:
                return
            yield None

    def word(self) -> Waiting[str]:
        """Read letters, digits, `_`, `-` and `.`, as in the name of a tool."""
        while True:
            match = _WORD.match(self.text, self.at)
            assert match is not None
            if match.end() < len(self.text) or self.ended:
                self.at = match.end()
                return match[0]
            yield None

    def find(self, *texts: str) -> Waiting[int]:
        """Return the place of the first of these texts; the end of all text if none of them comes."""
        while True:
            places = [place for text in texts if (place := self.text.find(text, self.at)) >= 0]
            if places:
                return min(places)
            if self.ended:
                return len(self.text)
            yield None

    def is_cut_off(self, *texts: str) -> bool:
        """Return whether all text ends here, perhaps within one of these texts."""
        return self.ended and self._may_become(texts)

    def _may_become(self, texts: tuple[str, ...]) -> bool:
        rest = self.text[self.at :]
        return any(text.startswith(rest) for text in texts)


def run(steps: Generator[D | None, None, None]) -> list[D]:
    """Run the steps until they need more text; return the deltas."""
    deltas: list[D] = []
    for step in steps:
        if step is None:
            break
        deltas.append(step)
    return deltas
