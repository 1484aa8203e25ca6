"""The types of the corpus: exchanges, which the subjects' makers return, and samples to train on."""

from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """A few turns on one subject. The last turn, by the assistant, is the one that is judged.

    Attributes:
        subject: name of the subject.
        messages: the turns.
        key: text that a correct reply contains. It is "" if any reply is correct (a story), or if the whole
            reply is compared (JSON or a tool call).
        thought: the model's reasoning before its last turn, if thinking is enabled.
        tools: tools in the prompt.
        system: system message. If it is None, a sample gets a random system message, or none.
    """

    subject: str
    messages: tuple[Message, ...]
    key: str
    thought: str
    tools: tuple[Tool, ...] = ()
    system: str | None = None


@dataclass(frozen=True)
class Sample:
    """One conversation as a client sends it, and the reply to it, which is the last message.

    A plain document, for completions without a chat template, has one message with the role `document`.
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
    """Return an exchange of one question and one answer in words."""
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    return Exchange(subject, turns, key, thought, **more)


def called(name: str, arguments: dict[str, Any]) -> Message:
    """Return an assistant turn that calls one tool."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}
