"""The name of llmfw on the package index, and the installed versions of llmfw and of other packages."""

from __future__ import annotations

import functools
from importlib import metadata

DISTRIBUTION = "llmfw-engine"
"""Name of the package on the index, where `llmfw` is another project. Import name and command are `llmfw`."""


def version() -> str:
    """Return the installed version, such as "0.1.0"."""
    found = version_of(DISTRIBUTION)
    if found is None:
        raise metadata.PackageNotFoundError(DISTRIBUTION)
    return found


@functools.cache
def version_of(package: str) -> str | None:
    """Return an installed package's version; None if it is not installed.

    Reads a package's metadata once per process, because parsing the metadata takes a millisecond.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
