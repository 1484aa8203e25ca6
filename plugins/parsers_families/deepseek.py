"""Tool calls and reasoning of DeepSeek's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llmfw.core import CallFormat

from .calls import CallParser, Steps, examples
from .qwen3_reasoning import Deltas, Qwen3ReasoningParser

CALLS = "<｜tool▁calls▁begin｜>"
CALLS_END = "<｜tool▁calls▁end｜>"
CALL = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
FENCE = "```"


class DeepSeekV31ToolParser(CallParser):
    """Reads `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`.

    The markers around all calls are optional. Text that is not a valid call ends the series of calls. This
    text, and all text after it, is content, which may contain further calls.
    """

    conformance = examples(
        (
            f'I look.{CALLS}{CALL}get_weather{SEPARATOR}{{"city": "Rome"}}{CALL_END}{CALLS_END}',
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
    )

    call_format = CallFormat(
        begin=CALL + "{name}" + SEPARATOR,
        end=CALL_END,
        trigger=CALL,
        between="",
        before=CALLS,
        after=CALLS_END,
    )
    needs_special_tokens = True
    markers = (CALLS, CALL)

    def read_calls(self) -> Steps[bool]:
        if (yield from self.reader.literal(CALLS)):
            yield from self.reader.space()
        if not (yield from self.read_call()):
            return False
        while (yield from self._read_another()):
            pass
        yield from self.skip(CALLS_END)
        return True

    def read_call(self) -> Steps[bool]:
        """Read one call at the reader's position; return whether there was one."""
        if not (yield from self.reader.literal(CALL)):
            return False
        name = yield from self.reader.word()
        if not (yield from self.reader.literal(SEPARATOR)):
            return False
        found = yield from self.read_named_call(name, CALL_END, CALLS_END)
        if found:
            yield from self.skip(CALL_END)
        return found

    def _read_another(self) -> Steps[bool]:
        yield from self.reader.space()
        found = yield from self.read_call()
        self.reader.at = 0
        return found


class DeepSeekV3ToolParser(DeepSeekV31ToolParser):
    """Reads the calls of V3 and R1: `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, then a fenced block.

    The fenced block contains the arguments.
    """

    conformance = examples(
        (
            f'I look.{CALLS}{CALL}function{SEPARATOR}get_weather\n{FENCE}json\n{{"city": "Rome"}}\n{FENCE}{CALL_END}{CALLS_END}',
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
    )

    call_format = CallFormat(
        begin=CALL + "function" + SEPARATOR + "{name}\n" + FENCE + "json\n",
        end="\n" + FENCE + CALL_END,
        trigger=CALL,
        between="\n",
        before=CALLS,
        after=CALLS_END,
    )

    def read_call(self) -> Steps[bool]:
        if not (yield from self.reader.literal(CALL + "function" + SEPARATOR)):
            return False
        name = yield from self.reader.word()
        yield from self.reader.space()
        if not (yield from self.reader.literal(FENCE + "json")):
            return False
        found = yield from self.read_named_call(name, "\n" + FENCE, CALL_END, CALLS_END)
        if found:
            yield from self.skip(FENCE)
            yield from self.skip(CALL_END)
        return found


class DeepSeekR1ReasoningParser(Qwen3ReasoningParser):
    """Splits off the reasoning with which every output starts.

    The opening marker may be in the output, in the prompt, in both or in neither.
    """

    conformance: ClassVar[Mapping[str, Any]] = {
        "examples": [
            ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
            ("Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ]
    }

    def __init__(self, *, in_reasoning: bool = False) -> None:
        super().__init__()
        self.in_reasoning = in_reasoning

    def _without_opening(self) -> Deltas:
        return self._begin_reasoning()
