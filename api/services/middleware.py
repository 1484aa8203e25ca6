"""Builds the middleware that the settings choose. Does not import Litestar."""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.interfaces.middleware import HTTPMiddleware
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.choice import choose
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registry import Entry, Registry

KIND = "middleware"


@dataclass(frozen=True, slots=True)
class Middleware:
    """A plugin's middleware in use.

    Attributes:
        component: the middleware.
        calls: record of its requests and failures.
        is_outside: whether it stands outside the checks of hosts, origins and keys.
        skips_events: whether events of streams bypass it.
    """

    component: HTTPMiddleware
    calls: ComponentCalls
    is_outside: bool
    skips_events: bool = False


def build_middleware(config: ServerConfig, registry: Registry) -> tuple[Middleware, ...]:
    """Build the middleware that `--middleware` names, from the outside inward.

    Raises:
        ConfigError: middleware is unknown or cannot work; an option is wrong, or is for middleware that is
            not chosen; or the order is not possible.
    """
    entries = choose(registry, KIND, config.middleware).entries
    names = [name for entry in entries for name in (entry.name, entry.full_name)]
    refuse_options_of_others(KIND, names, config.options, "--middleware NAME,NAME")
    found: list[Middleware] = []
    for entry in entries:
        component = entry.build(entry.load(), entry.build_options(config.options))
        is_outside, skips = (
            _declared(entry, component, name) for name in ("before_authentication", "skips_events")
        )
        found.append(Middleware(component, registry.ledger.of(entry), is_outside, skips))
        if found[-1].is_outside and not found[0].is_outside:
            raise ConfigError(
                f"middleware {entry.name!r} stands outside the check of keys, and {entries[0].name!r} inside; "
                f"--middleware names them from the outside inward: write {entry.name!r} first"
            )
    return tuple(found)


def _declared(entry: Entry, component: HTTPMiddleware, name: str) -> bool:
    declared = getattr(component, name)
    if not isinstance(declared, bool):
        raise ComponentError(f"{entry}: {name} is {declared!r:.80}; it must be True or False")
    return declared
