"""Ollama's names of models: a name without a tag means the tag `latest`."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core import ModelNotFoundError, ServedModel

LATEST = ":latest"


def tagged(served: str) -> str:
    """Return the name of the served model with a tag: `:latest` if the name has none."""
    return served if ":" in served.rpartition("/")[2] else served + LATEST


def model_in(given: str, models: Sequence[ServedModel]) -> tuple[str, ServedModel]:
    """Return the name of the model or adapter that `given` means, and the model.

    Raises:
        ModelNotFoundError: the server has no such model or adapter.
    """
    names = [(name, model) for model in models for name in (model.name, *model.adapters)]
    for name, model in names:
        if given in (name, tagged(name)):
            return name, model
    listed = ", ".join(repr(name) for name, _ in names)
    raise ModelNotFoundError(f"model {given!r:.300} not found; this server has {listed}")
