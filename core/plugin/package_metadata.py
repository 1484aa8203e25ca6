"""Reads names and versions of installed packages, and finds packages that lack an entry point.

Does not use importlib.metadata's own parser, because parsing the metadata as an email at each call would take
longer than all other work at a start.
"""

from __future__ import annotations

import contextlib
import functools
import re
from importlib.metadata import Distribution, distributions
from pathlib import PurePath

_ABOUT = re.compile(r"^(Name|Version): *(.*?) *$", re.MULTILINE)
_FOLDER = re.compile(r"\.(dist-info|egg-info)$")
_NEEDS_US = re.compile(
    r"^Requires-Dist: *llmfw[-_.]engine(?![\w.-])(?!.*\bextra\b)", re.MULTILINE | re.IGNORECASE
)


def head_of(distribution: Distribution) -> dict[str, str]:
    """Return the fields Name and Version of a package's metadata. Leaves out missing fields.

    Raises the exceptions of damaged metadata, such as UnicodeDecodeError.
    """
    return dict(reversed(_ABOUT.findall(header_of(distribution))))


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return the name and version of an installed package.

    If the metadata lack them or are damaged, takes them from the name of the metadata folder.
    """
    try:
        head = head_of(distribution)
    except Exception:  # noqa: BLE001 (damaged metadata raises various exceptions)
        head = {}
    if "Name" in head:
        return head["Name"], head.get("Version", "")
    name, _, version = _FOLDER.sub("", PurePath(folder_of(distribution)).name).partition("-")
    has_name = _FOLDER.search(folder_of(distribution)) is not None
    return name if has_name else "unknown package", head.get("Version", version if has_name else "")


def folder_of(distribution: Distribution) -> str:
    """Return the path of a package's metadata; "" if it is not in the file system."""
    return str(getattr(distribution, "_path", ""))


@functools.lru_cache(maxsize=64)
def header_of(distribution: Distribution) -> str:
    """Return the header fields of a package's metadata file as text, without the description below them.

    Reads them once for a `Distribution`, because all plugins of a package ask for them. Raises the exceptions of
    damaged metadata.
    """
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return text.partition("\n\n")[0]


def without_plugins(group: str) -> list[str]:
    """Return the name and version of each installed package that requires llmfw but has no plugin.

    A package has a plugin if it has an entry point in `group`.

    Such a package may be a program that uses llmfw, or a plugin whose author forgot the entry point. Reads
    the metadata of every installed package, so call it only after a lookup has failed.
    """
    found = set()
    for distribution in distributions():
        with contextlib.suppress(Exception):  # damaged metadata raises various exceptions
            if not _NEEDS_US.search(header_of(distribution)):
                continue
            if not distribution.entry_points.select(group=group):
                found.add(" ".join(name_and_version(distribution)))
    return sorted(found)
