"""Plugins' additions to the HTTP application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmfw.api.access.authenticators import Authenticators
from llmfw.api.adapters.isolated_source import IsolatedSource
from llmfw.api.services.middleware import Middleware
from llmfw.core.client.observers import Observers
from llmfw.core.plugin.calls import ComponentLedger


@dataclass(frozen=True, slots=True)
class Extensions:
    """Routes and components of plugins that the HTTP application uses.

    Attributes:
        routes: pairs of plugin and import path "package.module:name" of Litestar handlers, routers or controllers.
        middleware: middleware, from the outside inward.
        authenticators: authenticators, which the settings must name; None: no authenticators.
        observers: observers of the requests.
        adapter_source: source of adapters that are not loaded; None: there is none.
        ledger: record of the calls of components and stores, for the metrics.
    """

    routes: Sequence[tuple[str, str]] = ()
    middleware: Sequence[Middleware] = ()
    authenticators: Authenticators | None = None
    observers: Observers = field(default_factory=Observers)
    adapter_source: IsolatedSource | None = None
    ledger: ComponentLedger = field(default_factory=ComponentLedger)
