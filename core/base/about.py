"""The name of llmfw on the package index, and its installed version."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "llmfw-engine"
"""The package `llmfw` on the index is another project. The import name and the command are `llmfw`."""


def version() -> str:
    """Return the installed version, as "0.1.0"."""
    return metadata.version(DISTRIBUTION)
