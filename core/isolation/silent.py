"""Installed packages that depend on llmfw and bring no plugin: their authors forgot to say so, perhaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions

from ..package_metadata import name_and_version

_NEEDS_US = re.compile(r"^Requires-Dist: *llmfw(?![\w.-])(?![^\n]*extra *==)", re.MULTILINE | re.IGNORECASE)
_GROUP = re.compile(r"^\[(llmfw.*?)\]", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SilentPackage:
    """A package that brings no plugin, and the group of entry points that was meant to be ours, perhaps."""

    name: str
    version: str
    group: str | None

    @property
    def reason(self) -> str:
        """What it lacks, as a clause."""
        found = f"; it has [{self.group}]" if self.group else ""
        return f"declares no plugin: it has no entry point in the group 'llmfw' ([project.entry-points.llmfw]){found}"

    def __str__(self) -> str:
        return f"package {self.name} {self.version} {self.reason}"


def silent_packages() -> Iterator[SilentPackage]:
    """Yield the packages that depend on llmfw without an entry point in our group. Takes some milliseconds."""
    seen = set()
    for package in distributions():
        head = (package.read_text("METADATA") or "").partition("\n\n")[0]
        name, version = name_and_version(package)
        if name in seen:
            continue
        seen.add(name)  # what comes first on the path is what is imported
        groups = _GROUP.findall(package.read_text("entry_points.txt") or "")
        if "llmfw" not in groups and (groups or _NEEDS_US.search(head)):
            yield SilentPackage(name, version, groups[0] if groups else None)
