"""Starts and stops the server: engine process, application and uvicorn.

`serve` imports this module while the engine process starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import uvicorn
from litestar.types import ASGIApp

from llmfw.api.server.announcement import ready_text
from llmfw.api.server.connections import ConnectionTable, watching
from llmfw.api.server.forwarded import behind_proxies
from llmfw.api.server.limits import connection_limits
from llmfw.api.server.protocol import LimitedProtocol, protocol_factory
from llmfw.api.server.start import prepare_process
from llmfw.api.services.components import start_engine
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.stores import Stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import PluginError
from llmfw.core.base.log import SEVERAL_LINES, TIME_FORMAT, TIME_PREFIX, LogTarget
from llmfw.core.imports import garbage
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.registry import Registry

from .app import create_app
from .blame import ended_by
from .controls import ServerControls
from .extensions import Extensions
from .launched_models import LaunchedModel, LaunchedModels
from .listen import url_of
from .plugin_routes import refuse_shared_paths, usable_routes
from .signals import STOPPING, Signals

logger = logging.getLogger(__name__)

_UNTOLD = ("Waiting for application startup.", "Application startup complete.", "Started server process")
"""Starts of uvicorn's messages that tell users nothing."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells."""

GRACE_S = 3.0
"""Seconds after the drain for requests that it does not count, such as those of probes, and for connections to close."""


class Startable:
    """Wraps an application, and stores the error that stopped its startup.

    Without this wrapper, uvicorn would log the error with its traceback.

    Attributes:
        failure: exception that the startup raised, or None.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def without_traceback(message: Any) -> None:
            if message["type"] == "lifespan.startup.failed":
                message = {"type": "lifespan.startup.failed", "message": ""}
            await send(message)

        try:
            await self._app(scope, receive, without_traceback)
        except Exception as error:
            self.failure = error
            while isinstance(self.failure, ExceptionGroup) and len(self.failure.exceptions) == 1:
                self.failure = self.failure.exceptions[0]  # Litestar raises groups
            raise


class Server(uvicorn.Server):
    """uvicorn's server without its signal handlers. Ends requests that outlast the grace period.

    Args:
        app: the application.
        models: models whose engines are ended at shutdown, to end the streams that still run.
        url: URL of the socket, for the log.
        ready: text to log once the server accepts connections.
        controls: certificate of the server, and the service manager that gets its state.
    """

    def __init__(
        self,
        app: Startable,
        server_config: ServerConfig,
        models: LaunchedModels,
        url: str,
        ready: str,
        controls: ServerControls,
    ) -> None:
        self._limits = limits = connection_limits(server_config)
        self._connections = ConnectionTable(limits.connections, limits.connections_per_address)
        proxied = behind_proxies(app, server_config.trusted_proxy)
        super().__init__(_uvicorn_config(proxied, protocol_factory(limits, self._connections)))
        self._certificate = controls.certificate
        self._manager = controls.manager
        self._served = ", ".join(model.name for model in models)
        self._app = app
        self._models = models
        self._url = url
        self._ready = ready
        self._hurried = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers. `Serving` handles signals, also while the engine starts."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server and log that it is ready. If the application cannot start, raise its exception."""
        try:
            await super().startup([])
        except SystemExit:
            if self._app.failure is None:
                raise
            raise self._app.failure from self._app.failure.__cause__
        for sock in sockets or []:
            self.servers.append(await self._listen(sock))
        if self._certificate is not None:
            self._certificate.start()
        garbage.settle()
        logging.getLogger("uvicorn.error").info("Uvicorn running on %s (Press CTRL+C to quit)", self._url)
        logger.info("The server is fired up and ready to roll!")
        logger.info("%s", self._ready, extra=SEVERAL_LINES)
        self._manager.ready(f"Serves {self._served} at {self._url}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait up to GRACE_S for running requests, then end the remaining ones by stopping the engine."""
        ending = asyncio.create_task(self._end_streams())
        try:
            if self._certificate is not None:
                await self._certificate.close()
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    async def main_loop(self) -> None:
        """Serve until `should_exit` is set. Meanwhile, check the connections' deadlines, and send signs of life."""
        with watching(self._connections), self._manager.kept_informed():
            await super().main_loop()

    async def _listen(self, sock: socket.socket) -> asyncio.Server:
        """Start to accept connections. uvicorn's own call knows neither Unix sockets nor a limit for TLS handshakes."""
        loop = asyncio.get_running_loop()
        of_server = {"server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = partial(cast("Any", self.config.http_protocol_class), config=self.config, **of_server)
        options: dict[str, Any] = {"sock": sock, "backlog": self.config.backlog}
        if self._certificate is not None:
            options["ssl"] = self._certificate.context
            options["ssl_handshake_timeout"] = self._limits.header_timeout_s
        if sock.family == socket.AF_UNIX:
            return await loop.create_unix_server(protocol, **options)
        return await loop.create_server(protocol, **options)

    def hurry(self) -> None:
        """Stop waiting for running requests."""
        self._hurried.set()

    async def _end_streams(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), GRACE_S)
        await self._models.close()


class Serving:
    """One run of the server, from start to shutdown, with its signal handling.

    Args:
        models: models whose engine processes may already have been launched.
        plugins: loaded plugins, whose usable routes are served.
        stores: open stores, which this closes at the end.
        extensions: what plugins add to the application, except for routes.
        controls: keys, drain and certificate of the server.
        log: where the log goes.
    """

    def __init__(
        self,
        models: LaunchedModels,
        plugins: Plugins,
        stores: Stores,
        extensions: Extensions,
        controls: ServerControls,
        log: LogTarget,
    ) -> None:
        self._models = models
        self._log = log
        self._extensions = extensions
        self._controls = controls
        self._stores = stores
        self._config = models.first.settings.server
        self._plugins = plugins
        self._drain = controls.drain
        self._server: Server | None = None
        self._starting: asyncio.Task[Server] | None = None
        self._stopped_by: int | None = None

    async def run(self, sock: socket.socket, signals: Signals) -> int:
        """Start the engine, and serve on a bound socket until a signal stops the server.

        Returns:
            The exit code: 130 if Ctrl-C came before the server was ready, else 0.

        Raises:
            ConfigError: a component, a file of the model or an API key cannot be used; gives the
                reason.
            EngineError: the engine could not be started.
            EngineLostError: the engine died too often to be restarted.
            PluginError: code in this process cancelled the server's tasks.
        """
        try:
            self._starting = asyncio.create_task(
                self._start(url_of(sock, is_tls=self._controls.certificate is not None))
            )
            signals.hand_over(self._on_signal)
            try:
                self._server = await self._starting
                if self._stopped_by is not None:
                    # The signal came during the start's last step, too late to cancel it.
                    raise asyncio.CancelledError
            except BaseException as error:
                await self._stores.close()
                if not isinstance(error, asyncio.CancelledError):
                    raise
                return self._report_stop()
            try:
                await self._serve(self._server, sock)
            except asyncio.CancelledError:
                if self._stopped_by is None:
                    raise PluginError(ended_by(self._plugins, "cancelled its tasks")) from None
                raise
            return 0
        finally:
            await self._models.close()

    async def _serve(self, server: Server, sock: socket.socket) -> None:
        """Serve until the server has drained. If the engine is lost, stop and raise the reason."""
        losing = asyncio.create_task(self._models.wait_lost())
        serving = asyncio.create_task(server.serve([sock]))
        draining = asyncio.create_task(self._end_when_drained(server))
        try:
            await asyncio.wait({losing, serving, draining}, return_when=asyncio.FIRST_COMPLETED)
            if losing.done():
                server.should_exit = True
            elif draining.done():
                draining.result()
            await serving
        finally:
            losing.cancel()
            serving.cancel()
            draining.cancel()
        if losing.done():
            raise losing.result()

    async def _end_when_drained(self, server: Server) -> None:
        """Wait for the drain, then end the server and all requests that still run."""
        await self._drain.begun()
        self._models.stop_restarting()
        self._controls.manager.stopping("Draining")
        logger.info(
            "Draining: %d requests run, for which the server waits up to %g s; new ones get a 503. A second "
            "signal ends them at once",
            self._drain.num_open,
            self._drain.timeout_s,
        )
        if not await self._drain.run():
            logger.warning("%d requests still run and are ended", self._drain.num_open)
            server.hurry()
        server.should_exit = True

    def _report_stop(self) -> int:
        """Log that a signal ended the start. Return the exit code: 130 after Ctrl-C, else 0."""
        name = signal.Signals(self._stopped_by).name if self._stopped_by else "a signal"
        logger.warning("Stopped by %s before the model was ready", name)
        return INTERRUPTED if self._stopped_by == signal.SIGINT else 0

    def _on_signal(self, number: int) -> None:
        if number in STOPPING:
            self._stopped_by = self._stopped_by or number
            self._stop()
        elif number == signal.SIGHUP:
            logger.info(
                "SIGHUP: reads the files of API keys and of TLS again, and opens moved log files again; other settings need a restart"
            )
            self._controls.read_files_again()
        elif number == signal.SIGUSR1:
            logger.info(
                "SIGUSR1: the stacks of the API process's threads are above; the engine writes its own"
            )
            self._models.show_stacks()
        else:
            logger.warning("%s is ignored; send SIGTERM to stop the server", signal.Signals(number).name)

    def _stop(self) -> None:
        """Drain the server, or end its start; a second call ends running requests at once."""
        self._models.stop_restarting()
        if self._server is None:
            if self._starting is not None and not self._starting.cancelling():
                self._starting.cancel()
        elif not self._drain.begin():
            self._drain.hurry()
            self._server.hurry()

    async def _start(self, url: str) -> Server:
        """Start the engines, and build the application and its server."""
        registry, has_keys = self._plugins.registry, self._controls.keys.has_keys
        routes = usable_routes(self._plugins.routes)
        refuse_shared_paths(routes)  # before the weights are loaded, which may take minutes
        started = await self._start_engines(registry)
        extensions = replace(self._extensions, routes=routes)
        app = create_app(started, self._stores, self._config, extensions, self._controls)
        prepare_process(self._config, has_keys=has_keys)
        _setup_uvicorn_logging(self._log)
        startable = Startable(app)
        first = started[0]
        ready = ready_text(
            url,
            [model.name for model in self._models],
            task=first.client.info.task,
            is_chat=bool(self._config.chat_template or first.components.tokenizer.chat_template),
            needs_key=has_keys,
        )
        return Server(startable, self._config, self._models, url, ready, self._controls)

    async def _start_engines(self, registry: Registry) -> list[StartedModel]:
        """Start the engines of all models at the same time. If one cannot be started, raise its error."""

        async def start(model: LaunchedModel) -> StartedModel:
            settings = model.settings
            components = await start_engine(model.client, settings.engine, settings.server, registry)
            return StartedModel(model.client, components, settings.server)

        starts = [asyncio.create_task(start(model)) for model in self._models]
        try:
            return list(await asyncio.gather(*starts))
        finally:
            for each in starts:
                each.cancel()
            await asyncio.gather(*starts, return_exceptions=True)


def _setup_uvicorn_logging(log: LogTarget) -> None:
    """Format uvicorn's log lines and the access log like llmfw's own, with uvicorn's style of levels.

    Drops uvicorn's lines about the application's startup, because `Server.startup` logs more.
    """
    form = f"{TIME_PREFIX} %(levelprefix)s %(message)s"
    for name in ("uvicorn", "llmfw.access"):
        text = uvicorn.logging.DefaultFormatter(form, TIME_FORMAT, use_colors=False)
        logging.getLogger(name).handlers = [log.handler(text)]
        logging.getLogger(name).propagate = False
    logging.getLogger("uvicorn").handlers += log.also
    logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith(_UNTOLD))


def _uvicorn_config(app: ASGIApp, protocol: Callable[..., LimitedProtocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",  # uvicorn takes only coroutine functions for it by itself
        proxy_headers=False,  # `forwarded` reads them
        http=protocol,  # type: ignore[arg-type]
        ws="none",  # a WebSocket protocol would take over connections without our limits
        log_config=None,
        access_log=False,  # `access.access_log` logs requests, without secrets
        timeout_graceful_shutdown=int(GRACE_S) + 3,
        server_header=False,
    )
