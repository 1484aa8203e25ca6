"""The HTTP application: routes, error handling, and middleware for keys, request ids and the access log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.exceptions import ImproperlyConfiguredException
from litestar.middleware import DefineMiddleware
from litestar.types import ASGIApp, ControllerRouterHandler

from llmfw.api.access.access_log import AccessLog
from llmfw.api.access.authentication import AdminOnly, ApiKey
from llmfw.api.access.authenticators import Authenticators
from llmfw.api.access.key_caches import KeyCaches
from llmfw.api.access.key_text import hashed
from llmfw.api.access.keyring import Keyring
from llmfw.api.access.limited_client import LimitedEngineClient
from llmfw.api.access.redaction import Redaction
from llmfw.api.access.scopes import RouteScope
from llmfw.api.access.tenant_loads import TenantLoads
from llmfw.api.admin.access import AdminPaths, FromThisMachine
from llmfw.api.for_plugins.client import CallerEngineClient
from llmfw.api.for_plugins.server_api import InProcessAPI
from llmfw.api.for_plugins.services import CallerServices
from llmfw.api.http.errors import EXCEPTION_HANDLERS
from llmfw.api.http.query_names import QueryNames
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.lifecycle.gate import Gate
from llmfw.api.lifecycle.reloading import Reloading
from llmfw.api.metrics.http_requests import HTTPRequests
from llmfw.api.routes.about import about_routes
from llmfw.api.routes.adapters import adapter_routes
from llmfw.api.routes.admin import admin_routes
from llmfw.api.routes.anthropic import anthropic_routes
from llmfw.api.routes.batches import batch_routes
from llmfw.api.routes.chat import chat_routes
from llmfw.api.routes.completions import completion_routes
from llmfw.api.routes.embeddings import embedding_routes
from llmfw.api.routes.files import file_routes
from llmfw.api.routes.health import health_routes
from llmfw.api.routes.lifecycle import lifecycle_routes
from llmfw.api.routes.metrics import metrics_routes
from llmfw.api.routes.models import model_routes
from llmfw.api.routes.native import native_routes
from llmfw.api.routes.openapi import openapi_routes
from llmfw.api.routes.replicas import replica_routes
from llmfw.api.routes.responses import response_routes
from llmfw.api.routes.server_info import server_info_routes
from llmfw.api.routes.tokenize import tokenize_routes
from llmfw.api.routes.uploads import upload_routes
from llmfw.api.routes.weights import weights_routes
from llmfw.api.server.bodies import BodyReader
from llmfw.api.server.hosts import known_hosts
from llmfw.api.server.limits import body_limits
from llmfw.api.server.root_path import RootPath
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.observing import observed
from llmfw.api.services.services import Services
from llmfw.api.services.stores import Stores
from llmfw.api.text.terms import key_name, key_scopes
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError
from llmfw.core.client.observers import Observers
from llmfw.core.plugin.calls import ComponentLedger

from .cancelled_requests import CancelledRequests
from .controls import ServerControls
from .extensions import Extensions
from .head import HeadFollowsGet
from .home import Home
from .open_routes import home_of, open_paths
from .plugin_middleware import wrapped
from .plugin_routes import plugin_route, route_entry, shared_paths
from .request_id import add_request_id
from .router_estimate import add_router_estimate
from .trace_context import TraceContext

OPEN_PATHS = frozenset({"/", "/health", "/health/live", "/health/ready", "/health_generate", "/ping"})
"""The server's own paths that need no API key."""


def create_app(
    models: Sequence[StartedModel],
    stores: Stores,
    config: ServerConfig,
    extensions: Extensions | None = None,
    controls: ServerControls | None = None,
) -> ASGIApp:
    """Build the HTTP application.

    Args:
        models: the models, at least one. Requests that name no model are for the first.
        stores: opened stores; closed when the application shuts down.
        config: settings of the server, with those of the first model.
        extensions: what plugins add; None: nothing. The application's state gives their routes `api`, `services`,
            `client` and `config`.
        controls: keys, drain and certificate of the server; None: the keys of `config`, a new drain, and no
            certificate.

    Raises:
        ConfigError: an API key or a key file is invalid.
        ComponentError: a plugin's route cannot be imported, or another route has its path.
    """
    extensions = extensions or Extensions()
    controls = controls or ServerControls(Keyring(config), Drain())
    config = _without_keys(config)
    loads = TenantLoads(controls.keys)
    limited = [_limited(model, loads, extensions.observers) for model in models]
    services = Services(limited, stores, config, controls.keys, loads, extensions.adapter_source)
    controls.drain.add(services)
    http, clients = HTTPRequests(), services.models.map(lambda model: model.client)
    images = [model.vision.reader.counts for model in services.models if model.vision is not None]
    metrics = metrics_routes(clients, extensions.ledger, services.batches, http, extensions.observers, images)
    own = [*_routes(services, config, controls), *metrics]
    state = _state_for_plugins(services, config, controls.keys)
    app = _litestar(own, services, config, state)
    for plugin, path in extensions.routes:
        _register(app, plugin, path, extensions.ledger)
    home = home_of(app)
    following = HeadFollowsGet(app if home is None else Home(app, home))
    inner = wrapped(following, extensions.middleware, outside_checks=False)
    return _guarded(inner, config, extensions, controls, http, loads, OPEN_PATHS | open_paths(app))


def _limited(model: StartedModel, loads: TenantLoads, observers: Observers) -> StartedModel:
    """Return a model whose client holds tenants to their limits, and reports requests to observers."""
    config = _without_keys(model.config)
    client = observed(LimitedEngineClient(model.client, loads), observers, config.served_model_name)
    return replace(
        model, client=KeyCaches(client) if config.prefix_cache_scope == "key" else client, config=config
    )


def _litestar(
    routes: list[ControllerRouterHandler],
    services: Services,
    config: ServerConfig,
    state_for_plugins: dict[str, Any],
) -> Litestar:
    """Return the Litestar application with the API's own routes."""
    limits = body_limits(config)
    return Litestar(
        routes,
        on_startup=[services.start],
        on_shutdown=[services.close],
        exception_handlers=EXCEPTION_HANDLERS,
        middleware=[RouteScope, DefineMiddleware(QueryNames, strict=config.strict_params)],
        state=State({"bodies": BodyReader(limits), **state_for_plugins}),
        request_max_body_size=limits.body_bytes,
        openapi_config=None,
        logging_config=None,
    )


def _state_for_plugins(services: Services, config: ServerConfig, keys: Keyring) -> dict[str, Any]:
    """Return the entries of the application's state for plugins' routes. Each acts for the request's caller."""

    def is_admin() -> bool:
        return keys.is_admin(key_name.get(), key_scopes.get())

    models = services.models
    return {
        "api": InProcessAPI(models, strict=config.strict_params),
        "services": CallerServices(models, services.files, is_admin),
        "client": CallerEngineClient(models.first.client, is_admin),
        "config": config,
    }


def _register(app: Litestar, plugin: str, path: str, ledger: ComponentLedger) -> None:
    """Add a plugin's route to the application.

    Raises:
        ComponentError: the route cannot be imported, or another route has its path.
    """
    router = plugin_route(plugin, path, ledger)
    if shared := shared_paths(app, router):
        raise ComponentError(f"{route_entry(plugin, path)} is at a path that is taken: {', '.join(shared)}")
    try:
        app.register(router)
    except ImproperlyConfiguredException as error:
        entry = route_entry(plugin, path)
        raise ComponentError(f"{entry} does not go with the others: {error.detail}") from error


def _routes(
    services: Services, config: ServerConfig, controls: ServerControls
) -> list[ControllerRouterHandler]:
    """Return the API's own handlers."""
    models, first, strict = services.models, services.models.first, config.strict_params
    needs_key, root_path = controls.keys.has_keys, config.root_path or ""
    reloading = Reloading([model.client for model in models], controls.reloads())
    return [
        *chat_routes(models.map(lambda model: model.live.chat), strict=strict),
        *anthropic_routes(models.map(lambda model: model.messages), strict=strict),
        *completion_routes(models.map(lambda model: model.live.completions), strict=strict),
        *embedding_routes(models.map(lambda model: model.live.embeddings), strict=strict),
        *response_routes(services.responses, strict=strict),
        *file_routes(services.files),
        *upload_routes(services.uploads, strict=strict),
        *batch_routes(services.batches, strict=strict),
        *native_routes(models.map(lambda model: model.native), strict=strict),
        *server_info_routes(models.map(lambda model: model.description)),
        *tokenize_routes(models.map(lambda model: model.tokenization), strict=strict),
        *admin_routes(models.map(lambda model: model.admin), strict=strict),
        *adapter_routes(first.adapters, strict=strict),
        *replica_routes(services.replicas, controls.drain, strict=strict),
        *model_routes(models.map(lambda model: model.description)),
        *lifecycle_routes(controls.drain, reloading, models.map(lambda model: model.admin), strict=strict),
        *weights_routes(controls.drain, models.map(lambda model: model.weights), strict=strict),
        *health_routes(models.map(lambda model: model.client), controls.drain),
        *about_routes(", ".join(models.served_names), needs_key=needs_key, root_path=root_path),
        *openapi_routes(needs_key=needs_key, root_path=root_path),
    ]


def _without_keys(config: ServerConfig) -> ServerConfig:
    """Return the settings with digests in place of keys, because plugins' routes can read the settings."""
    return msgspec.structs.replace(
        config,
        api_key=tuple((name, hashed(key)) for name, key in config.api_key),
        admin_api_key=hashed(config.admin_api_key) if config.admin_api_key else None,
    )


def _guarded(
    app: ASGIApp,
    config: ServerConfig,
    extensions: Extensions,
    controls: ServerControls,
    http: HTTPRequests,
    loads: TenantLoads,
    public: frozenset[str],
) -> ASGIApp:
    """Wrap an application in the middleware for all requests: keys, `Host` and `Origin`, plugins' middleware that
    stands before these checks, trace context, the drain, ids, access log, counts."""
    keys, others = controls.keys, extensions.authenticators
    guarded = ApiKey(app, keys, public, others, loads) if keys.has_keys else app
    known = known_hosts(guarded, config, has_keys=keys.has_keys)
    has_any = keys.has_keys or keys.has_admin
    redact = Redaction((lambda key: keys.tenant_of(key) is not None) if has_any else None)
    checked = AdminPaths(known, _for_admins(app, keys, others))
    plugins = wrapped(checked, extensions.middleware, outside_checks=True)
    gated = Gate(TraceContext(plugins), controls.drain)
    whole = CancelledRequests(gated, [add_request_id, add_router_estimate, AccessLog(redact).note, http.note])
    return RootPath(whole, config.root_path or "")


def _for_admins(app: ASGIApp, keys: Keyring, others: Authenticators | None) -> ASGIApp:
    """Wrap an application in the checks for /admin.

    Clients need the administrator's key (see `AdminOnly`). If the server has no keys at all, they must be on
    this machine.
    """
    if not (keys.has_keys or keys.has_admin):
        return FromThisMachine(app)
    return ApiKey(AdminOnly(app, keys), keys, others=others)
