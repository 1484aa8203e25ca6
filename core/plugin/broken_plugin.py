"""Describes a plugin that did not load."""

from __future__ import annotations

from dataclasses import dataclass

FEWEST_LETTERS = 3
"""Minimum length of a component's name for `BrokenPlugin.is_named_in` to look for it in other names."""


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin that did not load, and the reason. All its registrations are dropped."""

    name: str
    distribution: str
    version: str
    reason: str

    def is_named_in(self, component: str) -> bool:
        """Return whether a component's name suggests that it belongs to this plugin.

        Returns True if the component's name contains the plugin's name, or is part of the name of the plugin
        or its package.
        """
        plugin, _, bare = component.rpartition("/")
        own, package, wanted = (_letters(name) for name in (self.name, self.distribution, bare))
        if len(wanted) < FEWEST_LETTERS:
            return plugin == self.name or bare == self.name
        return plugin == self.name or own in wanted or wanted in own or wanted in package

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.distribution} {self.version}) did not load: {self.reason}"


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
