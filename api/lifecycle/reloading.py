"""Reads files of a running server again, and changes the level of its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from llmfw.api.health.usable import not_failed
from llmfw.api.schemas.lifecycle import ReloadReply, ReloadRequest
from llmfw.core.base.control import SetLogLevel
from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.client.client import EngineClient

logger = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")


class Reloading:
    """Reads files again, and sets the log level, for an administrator.

    Args:
        clients: clients of the models' engines, whose log level is set, too.
        files: what the files contain, as a plural noun for messages → function that reads them again; raises
            ConfigError if they are invalid.
    """

    def __init__(
        self, clients: Sequence[EngineClient], files: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> None:
        self._clients = clients
        self._files = files

    async def reload(self, body: ReloadRequest) -> ReloadReply:
        """Read all files again, and set the log level if the request has one.

        Raises:
            RequestError: a field is wrong, or files are invalid. Invalid files are not used; all other files
                are used.
            EngineDeadError: no engine runs, so that the log level cannot be set.
        """
        if body.log_level is not None and body.log_level not in LEVELS:
            raise RequestError(
                f"log_level is {body.log_level[:100]!r}; it must be one of {', '.join(LEVELS)}",
                param="log_level",
            )
        problems = []
        for what, read_again in self._files.items():
            try:
                await read_again()
            except ConfigError as error:
                problems.append(f"{what} stay as they were: {error}")
        if body.log_level is not None:
            await self._set_level(body.log_level)
        if problems:
            raise RequestError("; ".join(problems), code="reload_failed")
        return ReloadReply(reloaded=list(self._files), log_level=body.log_level)

    async def _set_level(self, level: str) -> None:
        command = SetLogLevel(cast("Any", level))  # `reload` has checked it
        await asyncio.gather(*(client.control(command) for client in not_failed(self._clients)))
        logging.getLogger().setLevel(level.upper())
        logger.info("The log level is %s", level)
