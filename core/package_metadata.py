"""Name and version of an installed package, read from the text of its metadata.

importlib.metadata parses that text as a mail each time that it is asked, which takes longer than all else at a start.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution

_ABOUT = re.compile(r"^(Name|Version): *(.*?) *$", re.MULTILINE)


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return what a package calls itself, and its version."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head = dict(reversed(_ABOUT.findall(text.partition("\n\n")[0])))
    return head.get("Name", "unknown package"), head.get("Version", "")
