"""Keeps a faulty router from failing requests.

Logs the router's first fault, and does not call the router again. From then on, chooses the engine with the
fewest queued tokens. A router comes from a plugin. A router is faulty if it raises, or returns something
other than one of the engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.router import ReplicaView, RoutedRequest, Router
from llmfw.core.plugin.asking import Asked, WrongAnswerError
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.choice import create
from llmfw.core.plugin.registry import Registry

INSTEAD = "Each request goes to the engine with the fewest queued tokens from now on"


def least_loaded(replicas: Sequence[ReplicaView]) -> ReplicaView:
    """Return the engine with the fewest queued prompt tokens. Breaks ties by the fewest requests, then by the
    longest time since the engine was last chosen.
    """
    return min(
        replicas, key=lambda each: (each.queued_tokens, each.num_waiting + each.num_running, each.last_chosen)
    )


class IsolatedRouter:
    """Wraps a router so that it always chooses one of the engines.

    Args:
        router: router, called until its first fault; None: the engine with the fewest queued tokens.
        who: description of the router for the log: name, plugin, package and version.
        calls: record of the component's calls; None: not recorded.
    """

    def __init__(
        self, router: Router | None = None, who: str = "under test", calls: ComponentCalls | None = None
    ) -> None:
        self._router = router
        self._asked = Asked(who, INSTEAD, calls)

    @property
    def needs_matches(self) -> bool:
        """Whether the router needs the prompt's matches in the engines' prefix caches."""
        return self._router is not None and bool(self._router.needs_matches)

    @property
    def failure(self) -> str | None:
        """Description of the router's first fault; None if it has not failed."""
        return self._asked.failure

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        """Return one of the engines. `replicas` must not be empty."""
        router = self._router
        if router is None or len(replicas) == 1:
            return least_loaded(replicas)
        found = self._asked.answer(lambda: _checked(router.choose(request, replicas), replicas))
        return least_loaded(replicas) if found is None else found


def _checked(found: object, replicas: Sequence[ReplicaView]) -> ReplicaView:
    for replica in replicas:
        if found is replica:
            return replica
    kind = type(found).__name__
    raise WrongAnswerError(f"choose() returned a {kind} that is not one of the {len(replicas)} engines")


def build_router(registry: Registry, name: str, options: Mapping[str, OptionValue]) -> IsolatedRouter:
    """Build the router with this name.

    Args:
        name: "name" or "plugin/name".
        options: options by "router.key"; options of other kinds of components are ignored.

    Raises:
        ConfigError: no router has this name, an option is unknown, or an option has an invalid value.
        ComponentError: the router cannot be imported or built.
    """
    created = create(registry, "router", name, options)
    entry = created.entry
    who = f"the router {entry.name!r} of plugin {entry.plugin!r} ({entry.distribution} {entry.version})"
    return IsolatedRouter(created.component, who, registry.ledger.of(entry))
