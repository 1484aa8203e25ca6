"""Reads prompts from a terminal or a pipe, and shows answers as they arrive. Does not depend on servers."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping

import click

from llmfw.core.base.errors import LLMFWError

Commands = Mapping[str, tuple[str, Callable[[str], None]]]
"""Maps a command's name, with its slash, to its help and a function that takes the text after the name."""

_ENDS = ("/exit", "/quit")
_HOW_TO_END = "/exit or Ctrl-D ends"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prompt_of(given: str | None) -> str | None:
    """Return the given prompt, or else the text on standard input; None if standard input is a terminal.

    Raises:
        click.UsageError: the prompt is empty.
    """
    if given is None and sys.stdin.isatty():
        return None
    prompt = sys.stdin.read().removesuffix("\n") if given is None else given
    if not prompt:
        raise click.UsageError("the prompt is empty: give PROMPT, or pipe a text in")
    return prompt


class Screen:
    """Shows one answer on standard output. Shows reasoning only on a terminal, dimmed."""

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
            text = _CONTROL.sub("", text)  # keeps the model from sending control codes to the terminal
        click.echo(click.style(text, dim=True) if thinking else text, nl=False)
        self._last = text[-1:] or self._last

    def end(self) -> None:
        """Print a line break unless the answer ended with one."""
        if self._last != "\n":
            click.echo()


def converse(answer: Callable[[str], None], commands: Commands, read: Callable[[], str]) -> None:
    """Answer one line after the other until the input ends (Ctrl-D), or until /exit or /quit.

    Ctrl-C stops the current answer only. A second Ctrl-C at the prompt shows how to end. So does a line with
    only the word exit or quit.

    Prints errors of llmfw and continues.

    Args:
        answer: function that shows the answer to a line.
        commands: commands that lines can start with.
        read: function that returns the next line or raises EOFError.
    """
    was_interrupted = False
    while True:
        try:
            line = read().strip()
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(f"\n{_HOW_TO_END}" if was_interrupted else "", err=True)
            was_interrupted = True
            continue
        was_interrupted = False
        if line in _ENDS:
            return
        if f"/{line.lower()}" in _ENDS:
            click.echo(_HOW_TO_END, err=True)
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
    """Read a line from standard input, with line editing if available; raise EOFError at the end."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - importing it gives input() line editing
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
    click.echo("/exit     end the conversation, as /quit and Ctrl-D do", err=True)
    click.echo("/help     show this; Ctrl-C stops an answer", err=True)
