"""Reads the stream of frames that a server sends."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import msgspec

from llmfw.core import LLMFWError
from llmfw.core.base.server_url import server_url

from ..feed import Frame

PATH = "/admin/page/frames"
TIMEOUT_S = 10.0
HINTS = {
    401: "give an admin key: --api-key KEY, or LLMFW_ADMIN_API_KEY in the environment",
    403: "give an admin key: --api-key KEY, or LLMFW_ADMIN_API_KEY in the environment",
    404: "it is not an llmfw server, or was started with --no-plugin page",
}


class TopError(LLMFWError):
    """The server cannot be reached, or sends no frames."""


def frames(url: str, api_key: str | None) -> Iterator[Frame]:
    """Yield a server's frames, about ten a second, until the server ends.

    Raises:
        TopError: the server cannot be reached, refuses the stream, or closes it early.
    """
    try:
        base = server_url(url)
    except ValueError as error:
        raise TopError(f"--url {error}") from error
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    decoder = msgspec.json.Decoder(Frame)
    try:
        with httpx.stream("GET", base + PATH, headers=headers, timeout=TIMEOUT_S) as reply:
            if reply.status_code != 200:
                hint = HINTS.get(reply.status_code, "see its log")
                raise TopError(f"{base}{PATH} answers {reply.status_code}: {hint}")
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    yield decoder.decode(line[6:])
    except httpx.HTTPError as error:
        raise TopError(f"{base} cannot be reached any more: {error or type(error).__name__}") from error
    except msgspec.DecodeError as error:
        raise TopError(f"{base} sends frames of another version of llmfw: {error}") from error
    raise TopError(f"{base} has ended the stream")
