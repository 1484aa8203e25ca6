"""`llmfw serve`: config → engine process → application → uvicorn, and the way back down.

Knows processes, signals and the log; nothing of routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import socket
from collections.abc import Generator

import msgspec
import uvicorn
from litestar.types import ASGIApp

from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.config import EngineConfig, ServerConfig
from llmfw.core.log import TIME_FORMAT, TIME_PREFIX, setup_logging
from llmfw.core.part_options import option_text
from llmfw.core.plugins import Plugins

from .app import create_app
from .event_loop import run_to_end
from .listen import bind, url_of
from .parts import open_stores, start_engine
from .plugin_routes import usable_routes

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that none is closed as they use it again
GRACE_S = 3.0  # for streams that run when the server is told to stop
_PASSWORD = re.compile(r"(://[^:@/?]*:).*@")


def serve(engine_config: EngineConfig, server_config: ServerConfig, plugins: Plugins) -> None:
    """Serve until SIGINT or SIGTERM; returns after a clean end.

    Raises:
        ConfigError: the port, the model or a part cannot be had; with the reason.
        EngineError: the engine could not be started.
    """
    setup_logging(server_config.log_level)
    logger.info("%s", _arguments_line(engine_config, server_config))
    with contextlib.closing(bind(server_config.host, server_config.port)) as sock:
        run_to_end(_Serving(engine_config, server_config, plugins).run(sock))


class Server(uvicorn.Server):
    """uvicorn without its own ideas on signals, and with an end for streams that outlast the grace period."""

    def __init__(self, config: uvicorn.Config, client: ProcessEngineClient, url: str) -> None:
        super().__init__(config)
        self._client = client
        self._url = url
        self._hurried = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to `_Serving`: it handles them from before the engine's start on."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        logging.getLogger("uvicorn.error").info("Uvicorn running on %s (Press CTRL+C to quit)", self._url)
        logger.info("The server is fired up and ready to roll!")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests finish for a while; then end what still runs by ending the engine."""
        ending = asyncio.create_task(self._end_streams())
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    def hurry(self) -> None:
        """Do not wait for running requests any longer."""
        self._hurried.set()

    async def _end_streams(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), GRACE_S)
        await self._client.close()


class _Serving:
    """One run of the server, and what a signal means at each moment of it."""

    def __init__(self, engine: EngineConfig, server: ServerConfig, plugins: Plugins) -> None:
        self._engine_config = engine
        self._config = server
        self._plugins = plugins
        self._server: Server | None = None
        self._starting: asyncio.Task[Server] | None = None

    async def run(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        client = ProcessEngineClient(self._engine_config)
        try:
            self._starting = asyncio.create_task(self._start(client, url_of(sock)))
            try:
                self._server = await self._starting
            except asyncio.CancelledError:
                logger.info("Stopped while starting")
                return
            await self._server.serve([sock])
        finally:
            await client.close()

    def _stop(self) -> None:
        """Handle SIGINT or SIGTERM; a second one does not wait for running requests."""
        if self._server is not None:
            if self._server.should_exit:
                self._server.hurry()
            self._server.should_exit = True
        elif self._starting is not None:
            self._starting.cancel()

    async def _start(self, client: ProcessEngineClient, url: str) -> Server:
        """Open the stores, start the engine, and put the application together."""
        registry = self._plugins.registry
        stores = await open_stores(self._config, registry)
        try:
            parts = await start_engine(client, self._engine_config, self._config, registry)
            routes = usable_routes(self._plugins.routes)
            app = create_app(
                client, parts, stores, self._config, plugin_routes=routes, ledger=registry.ledger
            )
        except BaseException:
            await stores.close()
            raise
        _setup_uvicorn_logging()
        return Server(_uvicorn_config(app), client, url)


def _arguments_line(engine: EngineConfig, server: ServerConfig) -> str:
    """Return all settings on one line; API keys, and passwords in the URLs of options, are hidden."""
    values = msgspec.structs.asdict(engine) | msgspec.structs.asdict(server)
    for name in ("api_key", "admin_api_key"):
        values[name] = "***" if values[name] else None
    values["options"] = {
        key: _PASSWORD.sub(r"\1***@", option_text(value)) for key, value in server.options.items()
    }
    return "server_args=" + ", ".join(f"{name}={value!r}" for name, value in values.items())


def _setup_uvicorn_logging() -> None:
    """Give uvicorn's lines the form of the others, with its own way of showing levels and requests."""
    formats = {
        "uvicorn": uvicorn.logging.DefaultFormatter(
            f"{TIME_PREFIX} %(levelprefix)s %(message)s", TIME_FORMAT, use_colors=False
        ),
        "uvicorn.access": uvicorn.logging.AccessFormatter(
            f'{TIME_PREFIX} %(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s',
            TIME_FORMAT,
            use_colors=False,
        ),
    }
    for name, formatter in formats.items():
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        logging.getLogger(name).handlers = [handler]
        logging.getLogger(name).propagate = False


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        log_config=None,
        access_log=logging.getLogger().isEnabledFor(logging.INFO),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(GRACE_S) + 3,
        server_header=False,
    )
