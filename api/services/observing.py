"""Builds the observers that the settings choose, and closes them. Does not import Litestar."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from llmfw.core.base.config import ServerConfig
from llmfw.core.client.client import EngineClient
from llmfw.core.client.observed import ObservedEngineClient
from llmfw.core.client.observers import Observers, ObserverThread
from llmfw.core.interfaces.observer import RequestObserver
from llmfw.core.plugin.choice import choose
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registry import Registry

from .observer_choice import KIND, observer_options, observers_of


@contextlib.asynccontextmanager
async def observing(config: ServerConfig, registry: Registry) -> AsyncIterator[Observers]:
    """Build the observers that `--observers` names, and close them when the block ends.

    Raises:
        ConfigError: an observer is unknown or cannot work; or an option is wrong, or is for an observer that
            is not chosen.
    """
    observers = Observers(registry.request_fields())
    try:
        for thread in _threads(config, registry):
            observers.add(thread)
        yield observers
    finally:
        await observers.close()


def observed(client: EngineClient, observers: Observers, model: str) -> EngineClient:
    """Return a client whose requests are reported; the client itself if there are no observers.

    Args:
        model: name under which the model is served.
    """
    return (
        ObservedEngineClient(client, observers.report, model, observers.declared)
        if observers.threads
        else client
    )


def _threads(config: ServerConfig, registry: Registry) -> Iterator[ObserverThread]:
    entries = choose(registry, KIND, observers_of(config, registry)).entries
    names = [name for entry in entries for name in (entry.name, entry.full_name)]
    options = observer_options(config)
    refuse_options_of_others(KIND, names, options, "--observers NAME,NAME")
    for entry in entries:
        calls = registry.ledger.of(entry)
        made = guarded(entry.load(), RequestObserver, calls)
        yield ObserverThread(entry.build(made, entry.build_options(options)), calls)
