"""Reads prompts from a terminal or a pipe, and shows answers as they come. Knows nothing of servers."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping

import click

from llmfw.core.base.errors import LLMFWError

Commands = Mapping[str, tuple[str, Callable[[str], None]]]
"""A command's name with its slash → its help, and what it does with the text after it."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prompt_of(given: str | None) -> str | None:
    """Return the prompt: the one that was given, else what is piped in; None if a terminal is there to ask.

    Raises:
        click.UsageError: it is empty.
    """
    if given is None and sys.stdin.isatty():
        return None
    prompt = sys.stdin.read().removesuffix("\n") if given is None else given
    if not prompt:
        raise click.UsageError("the prompt is empty: give PROMPT, or pipe a text in")
    return prompt


class Screen:
    """Shows one answer on standard output. Thinking is shown on a terminal only, dimmed."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._thinking = False
        self._last = "\n"

    def show(self, text: str, *, thinking: bool = False) -> None:
        """Show a piece of the answer."""
        if not text or (thinking and not self._is_terminal):
            return
        if self._thinking and not thinking:
            click.echo()
        self._thinking = thinking
        if self._is_terminal:
            text = _CONTROL.sub("", text)  # a model does not get to steer the terminal
        click.echo(click.style(text, dim=True) if thinking else text, nl=False)
        self._last = text[-1:] or self._last

    def end(self) -> None:
        """End the last line."""
        if self._last != "\n":
            click.echo()


def converse(answer: Callable[[str], None], commands: Commands, read: Callable[[], str]) -> None:
    """Answer line after line until there are no more (Ctrl-D). Ctrl-C stops an answer; an error ends nothing.

    Args:
        answer: shows the answer to a line.
        read: returns the next line, or raises EOFError.
    """
    while True:
        try:
            line = read().strip()
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            continue
        try:
            if line.startswith("/"):
                _run(line, commands)
            elif line:
                answer(line)
        except KeyboardInterrupt:
            click.echo("(stopped)", err=True)
        except LLMFWError as error:
            click.echo(f"Error: {error}", err=True)


def read_line() -> str:
    """Ask for a line, with the editing that the terminal has; raises EOFError at the end."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - that it is there is enough for input()
    if sys.stdout.isatty():
        return input("> ")
    click.echo("> ", nl=False, err=True)
    return input()


def _run(line: str, commands: Commands) -> None:
    name, _, rest = line.partition(" ")
    if name in commands:
        commands[name][1](rest.strip())
        return
    if name != "/help":
        click.echo(f"There is no command {name}.", err=True)
    for known, (about, _) in commands.items():
        click.echo(f"{known:9} {about}", err=True)
    click.echo("/help     show this; Ctrl-C stops an answer, Ctrl-D ends", err=True)
