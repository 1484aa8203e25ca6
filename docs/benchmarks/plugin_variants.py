"""Servers with different observers and middleware, all in one process, each with a stub engine of its own."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turn_engine import TurnEngineClient

from llmfw.api.access.keyring import Keyring
from llmfw.api.app.app import create_app
from llmfw.api.app.controls import ServerControls
from llmfw.api.app.extensions import Extensions
from llmfw.api.app.launched_models import LaunchedModel, LaunchedModels, ModelSettings
from llmfw.api.app.listen import bind, url_of
from llmfw.api.app.serving import Server, Startable
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.services.components import start_engine
from llmfw.api.services.middleware import build_middleware
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.observing import observing
from llmfw.api.services.stores import open_stores
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.plugin.plugins import Plugins, load_plugins

OBSERVERS = ("counter-1", "counter-2", "counter-3", "counter-4")
NONE, AGAIN = "no plugins", "no plugins, a second time"
NAMES = (NONE, AGAIN, "five observers", "two middleware", "five observers, two middleware")


@dataclass(frozen=True)
class Variant:
    """A running server.

    Attributes:
        name: what it has, for the table.
        client: its engine.
        port: where it listens.
    """

    name: str
    client: TurnEngineClient
    port: int


@asynccontextmanager
async def serving_all(model: Path, folder: Path) -> AsyncIterator[list[Variant]]:
    """Run all servers until the block ends.

    Args:
        model: folder with a tokenizer.
        folder: empty folder, for the plugin and the request logs.
    """
    _write_plugin(folder)
    sys.path.insert(0, str(folder))
    plugins = load_plugins()
    async with AsyncExitStack() as stack:
        settings = dict(zip(NAMES, _settings(folder), strict=True))
        yield [
            Variant(name, *await stack.enter_async_context(_serving(model, settings[name], plugins)))
            for name in random.sample(NAMES, len(NAMES))  # where objects lie in memory depends on the order
        ]


def _settings(folder: Path) -> list[dict[str, Any]]:
    """Return the settings of each server, in the order of NAMES."""
    names = ",".join(["request-log", *OBSERVERS])
    observers, both = (
        {"observers": names, "options": {"observer.request-log.path": f"{folder}/log-{number}"}}
        for number in range(2)
    )
    none, origins = {"observers": "none"}, {"middleware.cors.origins": ["https://a.example"]}
    middleware = {"middleware": "cors,gzip", "options": origins}
    return [
        none,
        none,
        observers,
        none | middleware,
        both | middleware | {"options": both["options"] | origins},
    ]


@asynccontextmanager
async def _serving(
    model: Path, settings: dict[str, Any], plugins: Plugins
) -> AsyncIterator[tuple[TurnEngineClient, int]]:
    """Run one server until the block ends. It is put together as `llmfw serve` does it."""
    client = TurnEngineClient(str(model))
    config = ServerConfig(served_model_name="demo", log_level="warning", **settings)
    controls = ServerControls(Keyring(config), Drain(config.drain_timeout))
    stores = await open_stores(config, plugins.registry)
    async with observing(config, plugins.registry) as observers:
        components = await start_engine(client, EngineConfig(model=str(model)), config, plugins.registry)
        middleware = build_middleware(config, plugins.registry)
        extensions = Extensions(middleware=middleware, observers=observers, ledger=plugins.registry.ledger)
        settings = ModelSettings(EngineConfig(model=str(model)), config)
        models = LaunchedModels([LaunchedModel(settings, client)])
        app = create_app([StartedModel(client, components, config)], stores, config, extensions, controls)
        sock = bind("127.0.0.1", 0)
        server = _QuietServer(Startable(app), config, models, url_of(sock), "", controls)
        running = asyncio.create_task(server.serve([sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield client, sock.getsockname()[1]
        finally:
            server.end.set()
            await running


class _QuietServer(Server):
    """The server without what it does ten times a second: idle servers cost nothing while another one is measured.

    Attributes:
        end: ends the server when it is set.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        await self.end.wait()


def _write_plugin(folder: Path) -> None:
    """Write a plugin of four observers, each of which counts requests and tokens of each tenant."""
    registered = "".join(f"    register({name!r}, 'counting_observers:Counter')\n" for name in OBSERVERS)
    (folder / "counting_observers.py").write_text(
        "from llmfw.core import RequestEnded, RequestObserver, hookimpl\n\n\n"
        "class Counter(RequestObserver):\n"
        "    def __init__(self, options):\n"
        "        super().__init__(options)\n"
        "        self.counts = {}\n\n"
        "    def observe(self, events):\n"
        "        for event in events:\n"
        "            if isinstance(event, RequestEnded):\n"
        "                requests, tokens = self.counts.get(event.started.tenant, (0, 0))\n"
        "                self.counts[event.started.tenant] = (requests + 1, tokens + event.output_tokens)\n\n\n"
        f"@hookimpl\ndef register_observers(register):\n{registered}"
    )
    metadata = folder / "counting_observers-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting-observers\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[llmfw]\ncounting-observers = counting_observers\n")
