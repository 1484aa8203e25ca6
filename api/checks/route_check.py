"""Checks whether a server can use a plugin's route.

Adds the route to an application like a server's, but with an engine that computes nothing. The route's author
must test its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, NoReturn

import tokenizers
from litestar.types import ASGIApp

from llmfw.api.app.app import create_app
from llmfw.api.app.extensions import Extensions
from llmfw.api.app.plugin_routes import import_route, refuse_shared_paths
from llmfw.api.services.model_components import ModelComponents
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.stores import open_stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import ComponentError, EngineError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.registry import Entry, Registry

from .route_answers import NO_ENGINE, broken, check_answers
from .verdict import Promise


def check_route(entry: Entry, plugins: Plugins) -> Iterator[Promise]:
    """Check a plugin's route; yield its promises one by one, up to the first broken one.

    Args:
        plugins: the installed plugins, whose routes have other paths if this one can be served.
    """
    it_is_one = Promise("it_is_a_route")
    try:
        found = import_route(entry.plugin, entry.path)
    except ComponentError as error:
        yield broken(it_is_one, error.__cause__ or error, str(error).removeprefix(str(entry)).strip())
        return
    it_is_one.kept = 1
    yield it_is_one
    yield from asyncio.run(_check_in_app(entry, found, plugins))


async def _check_in_app(entry: Entry, found: Any, plugins: Plugins) -> list[Promise]:
    """Return promises: an application can add the route, and the route's paths answer requests."""
    fits, route = Promise("its_paths_are_free"), (entry.plugin, entry.path)
    config = ServerConfig(served_model_name="none")
    try:
        for other in _others(route, plugins):
            refuse_shared_paths([other, route])
        async with idle_app(config, plugins.registry, [route]) as app:
            fits.kept = 1
            return [fits, *await check_answers(app, found)]
    except ComponentError as error:
        return [broken(fits, error, str(error).removeprefix(str(entry)).strip())]


def _others(route: tuple[str, str], plugins: Plugins) -> Iterator[tuple[str, str]]:
    """Yield the routes of plugins that a server would serve together with a route."""
    for other in plugins.routes:
        with contextlib.suppress(ComponentError):  # a server leaves out routes that cannot be imported
            import_route(*other)
            if other != route:
                yield other


@contextlib.asynccontextmanager
async def idle_app(
    config: ServerConfig, registry: Registry, plugin_routes: Sequence[tuple[str, str]] = ()
) -> AsyncGenerator[ASGIApp]:
    """Yield an application like a server's, but with an engine that computes nothing.

    Args:
        config: configuration of the server.
        registry: registry with the server's stores.
        plugin_routes: pairs of a plugin and the path of its route, as in `Extensions`.

    Raises:
        ComponentError: a plugin's route cannot be used.
    """
    stores = await open_stores(config, registry)
    components = ModelComponents(
        tokenizer=Tokenizer(tokenizers.Tokenizer(tokenizers.models.BPE())), chat_template=_NoTemplate("", {})
    )
    try:
        model = StartedModel(_IdleEngine(), components, config)
        yield create_app([model], stores, config, Extensions(plugin_routes))
    finally:
        await stores.close()


class _NoTemplate(ChatTemplate):
    """A chat template that renders nothing. It is never called, since the engine refuses all requests."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        return ""


class _IdleEngine(EngineClient):
    """An engine client that refuses all requests."""

    info = EngineInfo(
        model="none",
        architecture="none",
        dtype="float32",
        device="cpu",
        vocab_size=1,
        max_model_len=1,
        max_total_tokens=1,
        max_running_requests=1,
        attention="none",
        policy="none",
    )
    failure = None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        self._refuse()
        yield

    async def embed(self, request: object) -> bytes:
        self._refuse()

    async def control(self, command: object) -> Any:
        self._refuse()

    async def stats(self) -> EngineStats:
        return EngineStats(
            num_running=0, num_waiting=0, num_used_tokens=0, num_cached_tokens=0, num_total_tokens=1
        )

    def _refuse(self) -> NoReturn:
        raise EngineError(NO_ENGINE)
