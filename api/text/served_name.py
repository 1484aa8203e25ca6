"""The names by which clients may call the served model."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.plugin.model_name import folder_name


def is_name_of(model: str, served_name: str, source: str) -> bool:
    """Return whether a client's name for the model is the served name, or the path from which that is made.

    A folder that is served under its own name also has the path with which the server was started, since clients
    of other servers send that. A name that the operator chose has no other.

    Args:
        source: the model's folder, or its hub id.
    """
    if model == served_name:
        return True
    return Path(model) == Path(source) and folder_name(source) == served_name
