"""Chooses the media processor of a server: the installed one with the largest rank."""

from __future__ import annotations

from llmfw.core.base.errors import ConfigError

from .registry import Entry, Registry

KIND = "media_processor"


def media_processor_entry(registry: Registry) -> Entry:
    """Return the media processor with the largest rank whose requirements are installed.

    Raises:
        ConfigError: there is none; the message says what to install.
    """
    reasons = []
    for entry in registry.entries(KIND):
        lacking = entry.lacking()
        if lacking is None:
            return entry
        reasons.append(f"{entry.spoken} {lacking}")
    raise ConfigError("; ".join(reasons) or "no plugin brings a media processor; install one")
