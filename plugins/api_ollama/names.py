"""Ollama's names of models: a name without a tag means the tag `latest`."""

from __future__ import annotations

from llmfw.core import ModelNotFoundError, ServedModel

LATEST = ":latest"


def tagged(served: str) -> str:
    """Return the name of the served model with a tag: `:latest` if the name has none."""
    return served if ":" in served.rpartition("/")[2] else served + LATEST


def name_in(given: str, model: ServedModel) -> str:
    """Return the name of the model or adapter that `given` means.

    Raises:
        ModelNotFoundError: the server has no such model or adapter.
    """
    for name in (model.name, *model.adapters):
        if given in (name, tagged(name)):
            return name
    listed = ", ".join(map(repr, (model.name, *model.adapters)))
    raise ModelNotFoundError(f"model {given!r:.300} not found; this server has {listed}")
