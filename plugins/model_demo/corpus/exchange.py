"""What the subjects make (exchanges) and what the model is trained on (samples)."""

from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """Some turns on one subject; the last one, of the assistant, is the one that is judged.

    `key` is what a right reply contains. Replies that are JSON or a tool call are compared as a
    whole, and an empty key says that there is no wrong answer (a story).
    `thought` is what the model thinks before its last turn when thinking is asked for.
    """

    subject: str
    messages: tuple[Message, ...]
    key: str
    thought: str
    tools: tuple[Tool, ...] = ()
    system: str | None = None


@dataclass(frozen=True)
class Sample:
    """One conversation, as a client sends it, and the reply to it (the last message).

    A plain document, for completions without a template, has one message, of role `document`.
    """

    subject: str
    messages: tuple[Message, ...]
    key: str = ""
    thinking: bool = False
    tools: tuple[Tool, ...] = field(default=())

    @property
    def prompt(self) -> list[Message]:
        return list(self.messages[:-1])

    @property
    def reply(self) -> Message:
        return self.messages[-1]

    @property
    def is_document(self) -> bool:
        return self.messages[0]["role"] == "document"


def asked(subject: str, question: str, answer: str, key: str, thought: str, **more: Any) -> Exchange:
    """The usual exchange: one question, one answer in words."""
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    return Exchange(subject, turns, key, thought, **more)


def called(name: str, arguments: dict[str, Any]) -> Message:
    """An assistant turn that calls one tool."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}
