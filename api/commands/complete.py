"""`llmfw complete`: continues a text with the model of a running server."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import click

from .dialogue import Screen, converse, prompt_of, read_line
from .remote import Remote, remote_options, to_body


@click.command("complete")
@click.argument("prompt", required=False)
@remote_options
def complete_command(prompt: str | None, url: str | None, api_key: str | None, **options: Any) -> None:
    """Continue a text with the model of a running server.

    Without PROMPT, reads the text from standard input. On a terminal, each line is a separate text. The
    server chooses the value of every option that you leave out; most servers stop after 16 tokens.
    """
    text = prompt_of(prompt)
    remote = Remote(url, api_key)
    body = to_body(remote, options)
    if text is not None:
        show_completion(remote, body, text)
        return
    click.echo(f"{body['model']} at {remote.url}; each line is continued, Ctrl-D ends.", err=True)
    converse(partial(show_completion, remote, body), {}, read_line)


def show_completion(remote: Remote, body: dict[str, Any], text: str) -> None:
    """Request a text's continuation, and print it as it arrives.

    Args:
        body: fields of every request, except the prompt.

    Raises:
        RemoteError: the server gives no answer, or an incomplete one.
    """
    screen = Screen()
    reason = None
    try:
        with contextlib.closing(remote.stream("/v1/completions", {**body, "prompt": text})) as stream:
            for choice in stream:
                screen.show(choice.get("text") or "")
                reason = choice.get("finish_reason") or reason
    finally:
        screen.end()
    if reason == "length":
        click.echo("(cut off: --max-tokens allows more)", err=True)
