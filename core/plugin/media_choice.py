"""Finds the media processors that a server can try for its model, the one with the largest rank first."""

from __future__ import annotations

from llmfw.core.base.errors import ConfigError

from .registry import Entry, Registry

KIND = "media_processor"


def media_processor_entries(registry: Registry) -> tuple[list[Entry], list[str]]:
    """Return the media processors whose requirements are installed, by descending rank, and reasons against others.

    Raises:
        ConfigError: there is none; the message says what to install.
    """
    usable, reasons = list[Entry](), list[str]()
    for entry in registry.entries(KIND):
        lacking = entry.lacking()
        if lacking is None:
            usable.append(entry)
        else:
            reasons.append(f"{entry.spoken} {lacking}")
    if not usable:
        raise ConfigError("; ".join(reasons) or "no plugin brings a media processor; install one")
    return usable, reasons


def media_processor_entry(registry: Registry, name: str = "") -> Entry:
    """Return the media processor with this name, as "plugin/name"; "": the usable one with the largest rank.

    Raises:
        ConfigError: there is none, or none of this name; the message says what to install.
    """
    return registry.find(KIND, name) if name else media_processor_entries(registry)[0][0]
