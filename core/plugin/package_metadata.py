"""Reads names and versions of installed packages, and finds packages that lack an entry point.

Does not use importlib.metadata's own parser, because parsing the metadata as an email at each call would take
longer than all other work at a start.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions

_ABOUT = re.compile(r"^(Name|Version): *(.*?) *$", re.MULTILINE)
_NEEDS_US = re.compile(
    r"^Requires-Dist: *llmfw[-_.]engine(?![\w.-])(?!.*\bextra\b)", re.MULTILINE | re.IGNORECASE
)


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return the name and version of an installed package."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head = dict(reversed(_ABOUT.findall(text.partition("\n\n")[0])))
    return head.get("Name", "unknown package"), head.get("Version", "")


def without_plugins(group: str) -> list[str]:
    """Return the name and version of each installed package that requires llmfw but has no plugin.

    A package has a plugin if it has an entry point in `group`.

    Such a package may be a program that uses llmfw, or a plugin whose author forgot the entry point. Reads
    the metadata of every installed package, so call it only after a lookup has failed.
    """
    found = set()
    for distribution in distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        if not _NEEDS_US.search(text.partition("\n\n")[0]):
            continue
        if not distribution.entry_points.select(group=group):
            found.add(" ".join(name_and_version(distribution)))
    return sorted(found)
