"""Name and version of an installed package, read from the text of its metadata; and which packages lack an entry point.

importlib.metadata parses that text as a mail each time that it is asked, which takes longer than all else at a start.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions

_ABOUT = re.compile(r"^(Name|Version): *(.*?) *$", re.MULTILINE)
_NEEDS_US = re.compile(
    r"^Requires-Dist: *llmfw[-_.]engine(?![\w.-])(?!.*\bextra\b)", re.MULTILINE | re.IGNORECASE
)


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return what a package calls itself, and its version."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head = dict(reversed(_ABOUT.findall(text.partition("\n\n")[0])))
    return head.get("Name", "unknown package"), head.get("Version", "")


def without_plugins(group: str) -> list[str]:
    """Return name and version of the installed packages that need llmfw and have no entry point in a group.

    A program that uses llmfw is one of them, and so is a plugin whose author forgot its entry point. Reads what every
    installed package says of itself: to be asked where something was not found.
    """
    found = set()
    for distribution in distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        if not _NEEDS_US.search(text.partition("\n\n")[0]):
            continue
        if not distribution.entry_points.select(group=group):
            found.add(" ".join(name_and_version(distribution)))
    return sorted(found)
