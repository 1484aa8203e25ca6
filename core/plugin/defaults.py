"""Names components that no user chose, such as the default policy.

A bare name that several plugins bring is refused if a user chooses it. If llmfw or a model's source names a
component, it means its own.
"""

from __future__ import annotations

from llmfw.core.base.about import DISTRIBUTION

from .registry import Entry, Registry


def default_name(registry: Registry, kind: str, name: str, plugin: str = "") -> str:
    """Return the name by which to find a component that the code names, and no user.

    Args:
        plugin: plugin whose code names it.

    If several plugins bring the name, returns "plugin/name" of that plugin's component, or else of llmfw's. If
    neither has one, returns the name as it is; `Registry.find` refuses it.
    """
    equal = [entry for entry in registry.entries(kind) if entry.name == name]
    own = [entry for entry in equal if entry.plugin == plugin]
    bundled = [entry for entry in equal if entry.distribution == DISTRIBUTION]
    meant = [*own, *bundled]
    return meant[0].full_name if len(equal) > 1 and meant else name


def name_of(registry: Registry, entry: Entry) -> str:
    """Return the name by which users choose a component: "plugin/name" if several plugins bring its name."""
    return entry.name if entry.name in registry.names(entry.kind) else entry.full_name
