"""The base class of tool parsers: finds calls in content and emits arguments as they arrive.

Does not depend on any model family's format.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from llmfw.core import ContentDelta, ToolCallDelta, ToolParser

from .json_scanner import JsonScanner
from .markers import certain_length
from .reader import Reader, Waiting, run

T = TypeVar("T")
Delta = ContentDelta | ToolCallDelta
Steps = Generator[Delta | None, None, T]

_SPACE_AT_END = re.compile(r"\s*\Z")


def examples(*found: tuple[str, list[tuple[str, str]], str]) -> Mapping[str, Any]:
    """Return a parser's `conformance` with examples for `llmfw check`.

    Args:
        found: triples of a text, the calls in it as (name, arguments), and its other content.
    """
    return {**CallParser.conformance, "examples": found}


class CallParser(ToolParser):
    """Finds calls in the content of one choice.

    Subclasses define the texts that may start a call, and read the calls.

    - The parser starts to emit a call once it has read the name of a known tool and the start of the
      arguments. Until then it emits nothing, because the text may still be content.
    - Text that turns out not to be a call is emitted as content, unchanged.
    - Arguments are emitted as the model writes them. If the JSON becomes invalid, everything up to the next
      marker, or the end of the text, counts as arguments. So the client sees the model's error unchanged.
    - The closing marker of the last call may be missing.
    - White space around calls is dropped.
    """

    conformance: ClassVar[Mapping[str, Any]] = {"streams_arguments": True}

    markers: ClassVar[tuple[str, ...]] = ()
    """Texts that may start a call anywhere in the content."""

    starts: ClassVar[str] = ""
    """Characters that may start a call, but only at the start of the content."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(tools)
        self.names = {tool["function"]["name"] for tool in tools}
        self.reader = Reader()
        self._num_calls = 0
        self._steps = self._read()

    def feed(self, text: str) -> list[Delta]:
        self.reader.text += text
        return run(self._steps)

    def finish(self) -> list[Delta]:
        self.reader.ended = True
        return run(self._steps)

    @abstractmethod
    def read_calls(self) -> Steps[bool]:
        """Read the calls that start at the reader's position; return whether there was one.

        Emits the calls and takes their text. If there is no call, takes no text.
        """

    def first_delta(self, name: str, arguments: str = "") -> ToolCallDelta:
        """Return the first delta of the next call."""
        self._num_calls += 1
        return ToolCallDelta(self._num_calls - 1, name, arguments)

    def next_delta(self, arguments: str) -> ToolCallDelta:
        """Return a delta with more arguments of the current call."""
        return ToolCallDelta(self._num_calls - 1, None, arguments)

    def read_named_call(self, name: str, *ends: str) -> Steps[bool]:
        """Read the rest of a call after its name, starting with the arguments; return whether it is a call.

        Args:
            name: name of the tool.
            ends: markers, one of which ends the arguments if they stop being JSON.
        """
        yield from self.reader.space()
        if name not in self.names or not self.reader.text.startswith("{", self.reader.at):
            return False
        self.reader.take(self.reader.at)
        yield self.first_delta(name)
        yield from self.read_arguments(JsonScanner(), *ends)
        return True

    def read_arguments(
        self, scanner: JsonScanner, *ends: str, junk: re.Pattern[str] = _SPACE_AT_END
    ) -> Steps[None]:
        """Emit the arguments as they arrive, up to the end of their object.

        Args:
            scanner: scanner that has accepted the text before the arguments.
            ends: markers, one of which ends the arguments if they stop being JSON.
            junk: text to drop from the end of arguments that stop being JSON.
        """
        depth, reader = scanner.depth, self.reader
        while True:
            if piece := reader.take(scanner.feed(reader.text, depth=depth)):
                yield self.next_delta(piece)
            if scanner.broken:
                rest = reader.take((yield from reader.find(*ends)))
                if rest := junk.sub("", rest):
                    yield self.next_delta(rest)
                return
            if (scanner.depth <= depth and piece) or reader.ended:
                return
            yield None

    def skip(self, *texts: str) -> Waiting[bool]:
        """Take white space and one of these texts, if present; return whether one was present.

        At the end of all text, an incomplete text counts, too. If none of the texts is present, takes
        nothing.
        """
        reader = self.reader
        yield from reader.space()
        found = (yield from reader.literal(*texts)) is not None
        if not found and reader.is_cut_off(*texts):
            reader.at, found = len(reader.text), True
        reader.take(reader.at if found else 0)
        return found

    def _read(self) -> Steps[None]:
        place = yield from self._start()
        after_call = False
        while place := place or (yield from self._content(after_call)):
            space, marker = place
            place = None
            after_call = yield from self.read_calls()
            if not after_call:
                yield ContentDelta(space + self.reader.take(len(marker)))

    def _start(self) -> Waiting[tuple[str, str] | None]:
        """Check whether the content starts with one of `starts`, possibly after white space.

        If so, takes the white space, and returns the white space and the character; else returns None.
        """
        yield from self.reader.space()
        start = self.reader.text[self.reader.at : self.reader.at + 1]
        if start and start in self.starts:
            return self.reader.take(self.reader.at), start
        self.reader.at = 0
        return None

    def _content(self, after_call: bool) -> Steps[tuple[str, str] | None]:
        """Emit content up to a marker; return the white space before the marker, and the marker.

        Returns None at the end of all text. If `after_call` is set, white space at the start is dropped.
        """
        reader = self.reader
        while True:
            places = [(reader.text.find(marker), marker) for marker in self.markers]
            found = min((place for place in places if place[0] >= 0), default=None)
            if found is not None:
                length = len(reader.text[: found[0]].rstrip())
            elif reader.ended:
                length = len(reader.text)
            else:
                length = certain_length(reader.text, *self.markers)
            text = reader.take(length)
            if text := text.lstrip() if after_call else text:
                after_call = False
                yield ContentDelta(text)
            if found is not None:
                space = reader.take(found[0] - length)
                return "" if after_call else space, found[1]
            if reader.ended:
                return None
            yield None
