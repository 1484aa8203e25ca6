"""Log lines of the API process about one of several engines. They start like the engine's own lines."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class EngineLog(logging.LoggerAdapter[logging.Logger]):
    """Puts the engine's number or model in front of each line.

    Args:
        logger: logger of the module.
        label: as `ReplicaPlace.label`; None: the server has one engine, which needs no name.
    """

    def __init__(self, logger: logging.Logger, label: int | str | None) -> None:
        super().__init__(logger)
        self._prefix = "" if label is None else f"[engine {label}] ".replace("%", "%%")

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message of a line with the prefix."""
        return f"{self._prefix}{msg}", kwargs
