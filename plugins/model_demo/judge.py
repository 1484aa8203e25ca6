"""Judges whether a reply of the demo model is right."""

import json
import re
from dataclasses import dataclass
from typing import Any

from .corpus import Sample
from .tokenization import TURN_END

_THOUGHT = re.compile(r"<think>\n(.*?)\n</think>\n\n", re.DOTALL)
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class Verdict:
    """A judged reply.

    Attributes:
        sample: sample that was asked.
        reply: the model's reply.
        right: whether the reply is right.
        ended: whether the reply ended its turn.
        thought_as_asked: whether the reply has reasoning if and only if it was asked for.
        valid: whether JSON parses, or a call parses and names a tool of the prompt; None: the sample asks
            for neither.
    """

    sample: Sample
    reply: str
    right: bool
    ended: bool
    thought_as_asked: bool
    valid: bool | None

    @property
    def good(self) -> bool:
        return self.right and self.ended and self.thought_as_asked


def judge(sample: Sample, reply: str) -> Verdict:
    """Compare a reply, including its end-of-turn token, with the corpus's reply to the sample."""
    ended = reply.endswith(TURN_END)
    said = reply.removesuffix(TURN_END)
    thought = _THOUGHT.match(said)
    answer = said[thought.end() :] if thought else said
    thinks = thought is not None if sample.thinking else "<think>" not in said
    right, valid = _compare(sample, answer)
    return Verdict(sample, reply, right, ended, thinks, valid)


def _compare(sample: Sample, answer: str) -> tuple[bool, bool | None]:
    """Return (whether the answer is right, whether its syntax is valid); see `Verdict`."""
    if "tool_calls" in sample.reply:
        wanted = [call["function"] for call in sample.reply["tool_calls"]]
        calls = [_parsed(text) for text in _CALL.findall(answer)]
        return calls == wanted, bool(calls) and all(_names_a_tool(call, sample) for call in calls)
    if sample.subject == "json":
        given = _parsed(answer)
        return given == json.loads(sample.reply["content"]), given is not None
    return sample.key in answer and "<tool_call>" not in answer, None


def _parsed(text: str) -> Any:
    """Return the JSON value of a text; None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _names_a_tool(call: Any, sample: Sample) -> bool:
    names = {tool["function"]["name"] for tool in sample.tools}
    return isinstance(call, dict) and set(call) == {"name", "arguments"} and call["name"] in names
