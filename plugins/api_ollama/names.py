"""Ollama's names of models: a name without a tag means the tag `latest`."""

from __future__ import annotations

from llmfw.core import ModelNotFoundError

LATEST = ":latest"


def tagged(served: str) -> str:
    """Return the name of the served model with a tag: `:latest` if the name has none."""
    return served if ":" in served.rpartition("/")[2] else served + LATEST


def check_name(given: str, served: str) -> None:
    """Raise ModelNotFoundError unless a name means the served model."""
    if given not in (served, tagged(served)):
        raise ModelNotFoundError(f"model {given!r:.300} not found; this server has {served!r}")
