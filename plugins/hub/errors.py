"""The error of a download."""

from __future__ import annotations

from llmfw.core import LLMFWError


class HubError(LLMFWError):
    """The hub cannot be reached, has no such model, or a file could not be downloaded whole."""


def reason_of(error: BaseException) -> str:
    """Return the first line of an error that the hub's library raised.

    The library raises error classes of several other libraries.
    """
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return text[:300]
