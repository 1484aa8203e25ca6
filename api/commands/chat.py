"""`llmfw chat`: sends one prompt to a running server, or holds a conversation with it."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from .dialogue import Screen, converse, prompt_of, read_line
from .image_file import image_part_of
from .remote import Remote, remote_options, to_body

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@click.command("chat")
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option(
    "--reasoning-effort", type=click.Choice(EFFORTS), help="Reasoning effort; none turns reasoning off."
)
@click.option("--image", multiple=True, metavar="FILE", help="Send this image with the prompt; repeatable.")
@remote_options
def chat_command(
    prompt: str | None,
    system: str | None,
    image: tuple[str, ...],
    url: str | None,
    api_key: str | None,
    **options: Any,
) -> None:
    """Chat with the model of a running server.

    Without PROMPT, reads the prompt from standard input. On a terminal, starts a conversation; /help lists
    its commands. The server chooses the value of every option that you leave out.
    """
    text = prompt_of(prompt)
    remote = Remote(url, api_key)
    chat = Chat(remote, to_body(remote, options), system)
    for path in image:
        chat.add_image(path)
    if text is not None:
        chat.ask(text)
        return
    click.echo(f"{chat.model} at {remote.url}; /help lists the commands, /exit ends.", err=True)
    commands = {
        "/reset": ("forget the conversation", lambda _: chat.reset()),
        "/image": ("FILE: send an image with the next message", chat.add_image),
        "/system": ("TEXT: forget it, and set the system prompt", chat.set_system),
    }
    converse(chat.ask, commands, read_line)


class Chat:
    """A conversation with a server's model.

    Args:
        remote: the server.
        body: fields of every request, except the messages.
        system: the system prompt; None: there is none.

    Attributes:
        messages: messages so far, in the form in which they are sent.
    """

    def __init__(self, remote: Remote, body: dict[str, Any], system: str | None) -> None:
        self._remote = remote
        self._body = body
        self._system = system
        self.messages: list[dict[str, Any]] = []
        self._images: list[dict[str, Any]] = []  # for the next message
        self.reset()

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self._body["model"])

    def reset(self) -> None:
        """Forget all messages except the system prompt."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def set_system(self, text: str) -> None:
        """Forget all messages, and set another system prompt; "": none."""
        self._system = text or None
        self.reset()

    def add_image(self, path: str) -> None:
        """Send an image file with the next message.

        Raises:
            RequestError: the file cannot be read, or is no image.
        """
        self._images.append(image_part_of(path))

    def ask(self, text: str) -> None:
        """Send a message and show the answer. Adds both to the conversation if the answer has any text.

        Raises:
            RemoteError: the server gives no answer, or an incomplete one.
        """
        content = [*self._images, {"type": "text", "text": text}] if self._images else text
        self.messages.append({"role": "user", "content": content})
        answer: list[str] = []
        try:
            self._show_answer(answer)
        finally:
            if answer:
                self.messages.append({"role": "assistant", "content": "".join(answer)})
                self._images.clear()
            else:
                self.messages.pop()

    def _show_answer(self, answer: list[str]) -> None:
        screen = Screen()
        reason = None
        stream = self._remote.stream("/v1/chat/completions", {**self._body, "messages": self.messages})
        try:
            with contextlib.closing(stream):
                for choice in stream:
                    delta = choice.get("delta") or {}
                    screen.show(delta.get("reasoning_content") or delta.get("reasoning") or "", thinking=True)
                    if content := delta.get("content"):
                        screen.show(content)
                        answer.append(content)
                    reason = choice.get("finish_reason") or reason
        finally:
            screen.end()
        if reason == "length":
            click.echo("(cut off: --max-tokens, or the context is full)", err=True)
