"""Asks a plugin's adapter source in a thread, within a time limit. A failure ends only the request."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError, OverloadedError
from llmfw.core.interfaces.adapter_source import AdapterSource
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.choice import create
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.plugin.registry import Registry
from llmfw.core.plugin.returned import WrongReturnError

logger = logging.getLogger(__name__)

KIND = "adapter_source"
MAX_THREADS = 4
"""Number of names that the source is asked for at once. A source that hangs keeps its thread."""


class IsolatedSource:
    """Wraps an adapter source.

    Args:
        source: the source.
        calls: record of the source's calls.
        timeout_s: seconds within which it must answer.
    """

    def __init__(self, source: AdapterSource, calls: ComponentCalls, timeout_s: float) -> None:
        self._source = source
        self._calls = calls
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(MAX_THREADS, "llmfw-adapter-source")
        self._find = calls.watched(source.find, _check)

    async def find(self, name: str) -> str | None:
        """Return the folder of an adapter; None if the source has none.

        Raises:
            RequestError: the source refuses the request.
            OverloadedError: the source did not answer in time, or cannot answer now.
            ComponentFailedError: the source failed.
        """
        asked = asyncio.get_running_loop().run_in_executor(self._threads, self._find, name)
        done, _ = await asyncio.wait({asked}, timeout=self._timeout_s)
        if done:
            return asked.result()
        asked.cancel()  # if it waits for a thread
        asked.add_done_callback(_forget)
        self._calls.failures += 1
        logger.error("%s did not find adapter %.100r within %g s", self._calls.entry, name, self._timeout_s)
        raise OverloadedError(
            f"{self._calls.entry.spoken} did not answer within {self._timeout_s:g} s; try again"
        )

    def close(self) -> None:
        """Stop the threads. A call that runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def build_source(engine: EngineConfig, server: ServerConfig, registry: Registry) -> IsolatedSource | None:
    """Build the source that `--adapter-source` names; None if it names none.

    Raises:
        ConfigError: there is no such source, no room for adapters, or an option is wrong.
        ComponentError: the source cannot be imported or built.
    """
    if server.adapter_source == "none":
        refuse_options(KIND, server.options, "no adapter source is chosen; --adapter-source NAME chooses one")
        return None
    if not (len(engine.adapters) if engine.max_adapters is None else engine.max_adapters):
        raise ConfigError(
            f"--adapter-source is {server.adapter_source!r:.100}, and there is no room for adapters; give --max-adapters, too"
        )
    created = create(registry, KIND, server.adapter_source, server.options)
    calls = registry.ledger.of(created.entry)
    return IsolatedSource(created.component, calls, server.adapter_source_timeout)


def _check(found: object) -> None:
    """Raise WrongReturnError unless a source's answer is None or an absolute path."""
    if found is not None and not (isinstance(found, str) and Path(found).is_absolute()):
        raise WrongReturnError(f"find() returned {found!r:.200}; it must return an absolute path or None")


def _forget(asked: asyncio.Future[str | None]) -> None:
    if not asked.cancelled():
        asked.exception()  # marks it as read; the calls of the component have logged it
