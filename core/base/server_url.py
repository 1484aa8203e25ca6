"""Reads the URL of a server as a user types it: `localhost:30000` is enough."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_EXAMPLE = "it must look like http://127.0.0.1:30000 or localhost:30000"
_HOST = re.compile(r"[\w.:%-]+")


def server_url(text: str) -> str:
    """Add the scheme to a server's URL if it has none, and remove `/v1` and slashes from the end.

    Args:
        text: URL as typed; one without a scheme is taken as `http://`.

    Raises:
        ValueError: the text is not an HTTP or HTTPS URL of a server. The message says why, and what to write.
    """
    url = text.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}; {_EXAMPLE}") from error
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{text!r} is not a URL of http or https; {_EXAMPLE}")
    if not parts.hostname or not _HOST.fullmatch(parts.hostname) or port == 0:
        raise ValueError(f"{text!r} is not a URL; {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a query or a fragment; give the server's URL without it")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
