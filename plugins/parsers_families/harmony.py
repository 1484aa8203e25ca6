"""Parsers for gpt-oss's Harmony format, which has channels for reasoning, answers and tool calls."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from llmfw.core import CallFormat, ContentDelta, MessageMarks, ReasoningDelta, ReasoningParser

from .calls import CallParser, Steps, examples
from .markers import partial_length
from .reader import Reader, Waiting, run

START = "<|start|>"
CHANNEL = "<|channel|>"
CONSTRAIN = "<|constrain|>"
MESSAGE = "<|message|>"
CALL = "<|call|>"
ENDS = ("<|end|>", "<|return|>", CALL)
RECIPIENT = "to="

_WORDS = frozenset({"assistant", "analysis", "commentary", "final", "json", "code"})
_IS_CALL = re.compile(r"\bto=")

Deltas = list[ReasoningDelta | ContentDelta]


class GptOssToolParser(CallParser):
    """Reads messages to a function.

    A message is `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`. The
    recipient (`to=…`) may come before or after the channel. The header may start with `<|start|>assistant`.
    """

    conformance = examples(
        (
            'I look.<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
    )

    call_format = CallFormat(
        begin=f"{CHANNEL}commentary {RECIPIENT}functions.{{name}} {CONSTRAIN}json{MESSAGE}",
        end=CALL,
        trigger=f"{CHANNEL}commentary {RECIPIENT}",
        between=f"{START}assistant",
    )
    needs_special_tokens = True
    markers = (START, CHANNEL)
    starts = RECIPIENT[0]

    def read_calls(self) -> Steps[bool]:
        name = yield from self._read_header()
        if not (yield from self.read_named_call(name, *ENDS, START, CHANNEL)):
            return False
        yield from self.skip(*ENDS)
        return True

    def _read_header(self) -> Waiting[str]:
        """Read a header up to the message; return the tool's name.

        Returns "" if there is no header, or the header has no recipient.
        """
        reader, name = self.reader, ""
        while True:
            yield from reader.space()
            part = yield from reader.literal(START, CHANNEL, CONSTRAIN, MESSAGE, RECIPIENT)
            if part == MESSAGE:
                return name.removeprefix("functions.")
            if part == RECIPIENT:
                name = yield from reader.word()
            elif part is None and (yield from reader.word()) not in _WORDS:
                return ""


class GptOssReasoningParser(ReasoningParser):
    """Splits messages by channel: the channel analysis is reasoning, the others are content.

    A message to a tool is emitted as content, too. The message keeps its markers only if a tool
    parser follows. Messages of one kind are separated by a line break.
    """

    conformance: ClassVar[Mapping[str, Any]] = {
        "examples": [
            (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
                "Hm.",
                "Yes.",
            ),
            ("Yes.", "", "Yes."),
        ]
    }

    closing = CHANNEL + "final" + MESSAGE
    messages = MessageMarks(
        opening=CHANNEL + "analysis" + MESSAGE,
        closing=ENDS[0],
        text=START + "assistant" + CHANNEL + "final" + MESSAGE,
        calls=START + "assistant",
    )
    needs_special_tokens = True

    def __init__(self, *, in_reasoning: bool = False) -> None:
        super().__init__(in_reasoning=in_reasoning)
        self._reader = Reader()
        self._written: set[type] = set()  # kinds of deltas that have been emitted
        self._steps = self._read()

    def feed(self, text: str) -> Deltas:
        self._reader.text += text
        return run(self._steps)

    def finish(self) -> Deltas:
        self._reader.ended = True
        return run(self._steps)

    def _read(self) -> Generator[ReasoningDelta | ContentDelta | None, None, None]:
        if self.in_reasoning:
            yield from self._read_body(ReasoningDelta)
        while (header := (yield from self._read_header())) is not None:
            if _IS_CALL.search(header) and self.keeps_calls:
                yield ContentDelta(header)
                yield from self._read_body(None)
            elif CHANNEL + "analysis" in header and not _IS_CALL.search(header):
                yield from self._read_body(ReasoningDelta)
            else:
                yield from self._read_body(ContentDelta)

    def _read_header(self) -> Waiting[str | None]:
        """Take and return a header with its last marker; "" if there is none; None at the end of all text.

        Drops an incomplete header: one that is cut off by the end of all text or of a message.
        """
        reader = self._reader
        while True:
            yield from reader.space()
            if reader.at == len(reader.text):
                return None
            if not (yield from reader.literal(START, CHANNEL, RECIPIENT)):
                reader.at = 0
                return ""
            end = yield from reader.find(MESSAGE, *ENDS)
            if reader.text.startswith(MESSAGE, end):
                return reader.take(end + len(MESSAGE))
            reader.take(end)
            reader.take(len((yield from reader.literal(*ENDS)) or ""))

    def _read_body(
        self, kind: type[ReasoningDelta | ContentDelta] | None
    ) -> Generator[ReasoningDelta | ContentDelta | None, None, None]:
        """Emit a message's text.

        Args:
            kind: type of the deltas. If it is None, the text is emitted as content, with the message's end
                marker; otherwise, the end marker is dropped.
        """
        reader, stops = self._reader, (*ENDS, START, CHANNEL)
        begun = False
        while True:
            ends = [place for stop in stops if (place := reader.text.find(stop)) >= 0]
            held = 0 if reader.ended else partial_length(reader.text, *stops)
            length = min(ends, default=len(reader.text) - held)
            if text := reader.take(length):
                if kind in self._written and not begun:
                    text = "\n" + text
                begun = True
                yield (kind or ContentDelta)(text)
            if ends or reader.ended:
                break
            yield None
        if kind is not None and begun:
            self._written.add(kind)
        marker = reader.take(len((yield from reader.literal(*ENDS)) or ""))
        if kind is None and marker:
            yield ContentDelta(marker)
