"""`llmfw serve`: binds the port, opens the stores, starts the engine process, then imports the HTTP server.

A start takes as long as the engine process needs to import torch and to read the weights. This process
imports Litestar in the meantime.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from llmfw.api.access.authenticators import build_authenticators
from llmfw.api.access.keyring import Keyring
from llmfw.api.adapters.isolated_source import build_source
from llmfw.api.crashes.crash_reports import CrashReports
from llmfw.api.crashes.reporting import reporting
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.lifecycle.service_manager import ServiceManager
from llmfw.api.server.announcement import Given, settings_line
from llmfw.api.server.edge_checks import check_edge
from llmfw.api.server.tls import certificate_of
from llmfw.api.services.middleware import build_middleware
from llmfw.api.services.observing import observing
from llmfw.api.services.option_checks import check_options
from llmfw.api.services.stores import open_stores
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import PluginError
from llmfw.core.base.log import LogTarget, setup_logging
from llmfw.core.client.launched import LaunchedEngineClient
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.start import engine_client
from llmfw.core.client.watchdog import WatchdogLimits
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.preparation import begin_to_prepare
from llmfw.core.plugin.registry import Registry

from .blame import ended_by
from .controls import ServerControls
from .event_loop import run_to_end
from .extensions import Extensions
from .launched_models import ModelSettings, launched_models
from .lingering import Lingering
from .listen import listening
from .signals import Signals

logger = logging.getLogger(__name__)


def serve(settings: Sequence[ModelSettings], plugins: Plugins, given: Given | None = None) -> int:
    """Serve until a signal stops the server, and return after a clean shutdown. Call it in the main thread.

    Args:
        settings: settings of each model. Those of the server itself are taken from the first.
        given: settings that the user gave, for the log; None: all settings of the configs.

    Returns:
        The exit code: 130 if Ctrl-C came before the server was ready, else 0.

    Raises:
        ConfigError: the port, the certificate, a store, the model, a component or an API key cannot be used; gives the reason.
        EngineError: the engine could not be started.
        EngineLostError: the engine died too often to be restarted.
        PluginError: code in this process ended the server.
    """
    engine_config, server_config = settings[0].engine, settings[0].server
    with Signals() as signals, reporting(engine_config, server_config) as reports:
        also = () if reports is None else (reports.log_handler,)
        log = LogTarget(server_config.log_format, server_config.log_file, also)
        setup_logging(server_config.log_level, log)
        logger.info("%s", settings_line(engine_config, server_config, given or Given()))
        if reports is not None:
            reports.tidy()
        logger.debug("Resolved %s", settings_line(engine_config, server_config, Given()))
        keys = Keyring(server_config)  # first, so that an invalid key file is reported early
        drain, manager = Drain(server_config.drain_timeout), ServiceManager.of(os.environ)
        controls = ServerControls(keys, drain, certificate_of(server_config), manager)
        check_edge(server_config)
        with listening(server_config) as sock:
            new_client = partial(_client, registry=plugins.registry, reports=reports)
            models = launched_models(settings, new_client)
            for model in models:
                check_options(model.settings.engine, model.settings.server, plugins.registry)
            extensions = _extensions(engine_config, server_config, plugins.registry)
            lingering = Lingering()

            async def run() -> int:
                async with observing(server_config, plugins.registry) as observers:
                    stores = await open_stores(server_config, plugins.registry)  # before anything is loaded
                    begin_to_prepare(engine_config, plugins.registry)
                    with models.launched():
                        from .serving import Serving  # imports Litestar

                        whole = replace(extensions, observers=observers)
                        serving = Serving(models, plugins, stores, whole, controls, log)
                        code = await serving.run(sock, signals)
                lingering.watch(code)
                return code

            try:
                with lingering.until_closed():
                    signals.exit_code = run_to_end(run())
            except SystemExit as error:  # raised in a task: asyncio ends the event loop
                raise PluginError(ended_by(plugins, f"raised SystemExit({error.code!r})")) from error
            return signals.exit_code


def _client(
    engine: EngineConfig, server: ServerConfig, registry: Registry, reports: CrashReports | None
) -> LaunchedEngineClient:
    """Return the client of the engines, whose crashes are reported."""
    limits = WatchdogLimits.of(server.watchdog_timeout)

    def new_life(config: EngineConfig) -> ProcessEngineClient:
        recorder = None if reports is None else reports.new_recorder(config)
        return ProcessEngineClient(config, watchdog=limits, recorder=recorder)

    return engine_client(engine, server, registry, new_life)


def _extensions(engine: EngineConfig, config: ServerConfig, registry: Registry) -> Extensions:
    """Build the authenticators, the middleware and the adapter source that the settings choose.

    Raises:
        ConfigError: one of these components is unknown or cannot work, or an option is wrong.
    """
    authenticators = build_authenticators(config, registry)
    return Extensions(
        middleware=build_middleware(config, registry),
        authenticators=authenticators if config.authenticators != "none" else None,
        adapter_source=build_source(engine, config, registry),
        ledger=registry.ledger,
    )
