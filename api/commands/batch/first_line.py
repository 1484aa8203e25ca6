"""Reads the endpoint of a file of requests from its first line."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from pathlib import Path

import click

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
            f"the first line of {str(path)!r} is no request of a batch: "
            '{"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}'
        ) from None
    url = "/" + url.strip("/")
    return url if url.startswith("/v1/") else "/v1" + url
