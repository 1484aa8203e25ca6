"""Whether an installed package was made for this llmfw: what it says in its own dependencies.

pip holds to these when it installs; whoever installs without dependencies, or upgrades llmfw alone, is told here.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distribution

from ..package_metadata import name_and_version

OURS = "llmfw"
_REQUIREMENT = re.compile(r"^Requires-Dist: *(llmfw\b[^\n]*)$", re.MULTILINE | re.IGNORECASE)


def reason_against(package: Distribution | None) -> str | None:
    """Return why a package's plugins are not loaded by this llmfw, or None if it asks for none other.

    A development version counts as the release that it leads to.
    """
    if package is None:
        return None
    # The text itself: parsing it as a mail, as importlib.metadata does, takes longer than all the rest.
    head = (package.read_text("METADATA") or "").partition("\n\n")[0]
    for line in _REQUIREMENT.findall(head):
        if not re.match(r"llmfw(?![\w.-])", line, re.IGNORECASE) or not re.search(r"[<>=~!]", line):
            continue
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.version import Version

        try:
            asked = Requirement(line)
        except InvalidRequirement:
            continue
        if asked.marker is not None and not asked.marker.evaluate({"extra": ""}):
            continue
        _, here = name_and_version(distribution(OURS))
        if not asked.specifier.contains(Version(here).base_version, prereleases=True):
            return f"it needs {asked.name}{asked.specifier}, and this is llmfw {here}"
    return None
