"""The name of llmfw on the package index, and its installed version."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "llmfw-engine"
"""Name of the package on the index, where `llmfw` is another project. Import name and command are `llmfw`."""


def version() -> str:
    """Return the installed version, such as "0.1.0"."""
    return metadata.version(DISTRIBUTION)
