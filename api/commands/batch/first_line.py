"""Finds the endpoint of a file of requests: the first line names it, and `--endpoint` must agree."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from pathlib import Path

import click

from llmfw.api.batches.paths import SUPPORTED, TASKS

LONGEST_LINE = 64 * 2**20


def endpoint_of(path: Path) -> str:
    """Return the endpoint that the first line of a file names, with `/v1` in front.

    Raises:
        click.UsageError: the first line is not a request of a batch.
    """
    line = b""
    with open(path, "rb") as file:
        while not line and (read := file.readline(LONGEST_LINE)):
            line = read.removeprefix(BOM_UTF8).strip()
    try:
        url = json.loads(line)["url"]
        if not isinstance(url, str):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise click.UsageError(
            f"the first line of {str(path)!r} is not a request of a batch: "
            '{"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}'
        ) from None
    return _with_v1(url)


def chosen_endpoint(path: Path, given: str | None) -> str:
    """Return the endpoint of a file of requests.

    Args:
        given: value of `--endpoint`, with or without `/v1`; None: the endpoint that the first line names.

    Raises:
        click.UsageError: batches do not support the endpoint, or the first line names another endpoint.
    """
    named = endpoint_of(path)
    endpoint = named if given is None else _with_v1(given)
    if endpoint not in TASKS:
        where = f"the url of the first line of {str(path)!r}" if given is None else "--endpoint"
        raise click.UsageError(f"{where} is {given or named!r}; batches are for {SUPPORTED}")
    if endpoint != named:
        raise click.UsageError(
            f"--endpoint is {given!r}, and the first line of {str(path)!r} has the url {named!r}; all lines of a batch "
            "have one url: leave out --endpoint"
        )
    return endpoint


def _with_v1(url: str) -> str:
    url = "/" + url.strip("/")
    return url if url.startswith("/v1/") else "/v1" + url
