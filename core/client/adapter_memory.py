"""Remembers the adapters of an engine, to load them on engines that start later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    Answer,
    ListAdapters,
    LoadAdapter,
    UnloadAdapter,
)

logger = logging.getLogger(__name__)

POLL_S = 0.02
"""Seconds between two checks whether adapters are loaded."""


class AdapterMemory:
    """The adapters to load on a restarted engine: the adapters in the previous engine's last list.

    Attributes:
        paths: path of each adapter, by its name; None: the adapters of the settings.
    """

    def __init__(self) -> None:
        self.paths: dict[str, str] | None = None
        self._digests: dict[str, str] = {}

    def begin(self, adapters: Iterable[AdapterInfo]) -> None:
        """Remember the files of the adapters that an engine loaded at its start."""
        self._digests = {each.name: each.digest for each in adapters}

    def note(self, answer: Answer) -> None:
        """Remember the adapters in an engine's answer, if it lists them."""
        if isinstance(answer, AdapterList):
            self.paths = _ready(answer)
            self.begin(each for each in answer.adapters if each.state == "ready")

    def digest_of(self, name: str) -> str | None:
        """Return the hash of the files of an adapter; None if the engine has no adapter of this name."""
        return self._digests.get(name)

    async def restore(self, ask: Callable[[AdapterCommand], Awaitable[Answer]]) -> None:
        """Load the remembered adapters on a new engine, and unload all its other adapters.

        An adapter that can no longer be loaded is logged and left out.

        Args:
            ask: sends a command to the new engine.
        """
        applied = None
        while applied != self.paths and self.paths is not None:  # `note` may run meanwhile
            applied = dict(self.paths)
            await self._give(applied, ask)

    async def _give(
        self, paths: Mapping[str, str], ask: Callable[[AdapterCommand], Awaitable[Answer]]
    ) -> None:
        has = _ready(await ask(ListAdapters()))
        for name in has.keys() - paths.keys():
            await ask(UnloadAdapter(name))
        missing = [(name, path) for name, path in paths.items() if has.get(name) != path]
        for name, path in missing:
            await ask(LoadAdapter(name, path))
            while _is_loading(found := _listed(await ask(ListAdapters()))):
                await asyncio.sleep(POLL_S)
            if _ready(found).get(name) != path:
                errors = [each.error for each in found.adapters if each.name == name and each.error]
                logger.error("Adapter %s is lost with the engine that ended: %s", name, "".join(errors[-1:]))


def _listed(answer: Answer) -> AdapterList:
    assert isinstance(answer, AdapterList), f"the engine listed its adapters by {answer!r}"
    return answer


def _ready(answer: Answer) -> dict[str, str]:
    """Return the path of each adapter that takes requests."""
    return {each.name: each.path for each in _listed(answer).adapters if each.state == "ready"}


def _is_loading(found: AdapterList) -> bool:
    return any(each.state == "loading" for each in found.adapters)
