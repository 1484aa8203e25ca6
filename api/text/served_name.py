"""The names by which clients may call the served model."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.plugin.model_name import folder_name


def is_name_of(model: str, served_name: str, source: str) -> bool:
    """Return whether a client's name for the model is the served name, or the path that gave the served name.

    If the served name is the name of the model's folder, clients may also send the path with which the server
    was started, as clients of other servers do. If the operator chose the served name, clients must send that
    name.

    Args:
        source: the model's folder, or its hub id.
    """
    if model == served_name:
        return True
    return Path(model) == Path(source) and folder_name(source) == served_name
