"""Names components that no user chose, such as the default policy.

If several plugins register a name, users may not choose it without the plugin's name. If llmfw or a model
source names a component, the name means its own component.
"""

from __future__ import annotations

from llmfw.core.base.about import DISTRIBUTION

from .registry import Entry, Registry


def default_name(registry: Registry, kind: str, name: str, plugin: str = "") -> str:
    """Return an unambiguous name of a component that the code names, not a user.

    Args:
        plugin: plugin whose code names the component.

    If several plugins register the name, returns "plugin/name" of this plugin's component, or else of llmfw's
    component. If neither exists, returns the name unchanged; `Registry.find` refuses it.
    """
    equal = [entry for entry in registry.entries(kind) if entry.name == name]
    own = [entry for entry in equal if entry.plugin == plugin]
    bundled = [entry for entry in equal if entry.distribution == DISTRIBUTION]
    meant = [*own, *bundled]
    return meant[0].full_name if len(equal) > 1 and meant else name


def name_of(registry: Registry, entry: Entry) -> str:
    """Return the name by which users choose a component: "plugin/name" if several plugins register it."""
    return entry.name if entry.name in registry.names(entry.kind) else entry.full_name
