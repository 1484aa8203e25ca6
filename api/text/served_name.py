"""The names by which clients may call the served model."""

from __future__ import annotations

from pathlib import Path

from llmfw.core.plugin.model_name import folder_name


class BaseNames:
    """The served name of a model, and the path that gave the served name.

    If the served name is the name of the model's folder, clients may also send the path with which the server
    was started, as clients of other servers do. If the operator chose the served name, clients must send that
    name.

    Args:
        served_name: name of the model for clients.
        source: the model's folder, or its hub id.
    """

    def __init__(self, served_name: str, source: str) -> None:
        self._exact = {served_name}
        self._path: Path | None = None
        if folder_name(source) == served_name:
            self._exact.add(source)
            self._path = Path(source)

    def __contains__(self, model: str) -> bool:
        """Return whether a client's name means the model."""
        return model in self._exact or (self._path is not None and Path(model) == self._path)
