"""Finds the entry points of plugins among the installed packages.

Reads each package by itself: importlib.metadata's `entry_points` raises for all packages if the metadata of one
is damaged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, distributions

from llmfw.core.base.described import described

from .one_line import one_line
from .package_metadata import folder_of, head_of, name_and_version


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """The entry points of a group, and what is wrong with packages.

    Attributes:
        entry_points: entry points of the packages that could be read. If a package is installed twice, those of
            the first copy on `sys.path`.
        damaged: a sentence for each package whose entry points cannot be read.
        notes: a sentence for each package that has no name, or is installed in several versions.
    """

    entry_points: list[EntryPoint] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_plugins(group: str) -> InstalledPlugins:
    """Return the entry points of a group. Damaged packages are left out, and reported."""
    found = InstalledPlugins()
    seen: dict[str, Distribution] = {}
    for package in _packages(found):
        try:
            entry_points = package.entry_points.select(group=group)
        except Exception as error:  # noqa: BLE001 (damaged metadata raises various exceptions)
            found.damaged.append(
                f"package {_shown(package)} is damaged: its entry_points.txt cannot be read "
                f"({one_line(described(error))}); its plugins are left out, as are backends of torch "
                "and triton that other packages bring; reinstall or uninstall it"
            )
            continue
        if not entry_points:
            continue
        name = re.sub(r"[-_.]+", "-", name_and_version(package)[0]).lower()
        used = seen.setdefault(name, _first_copy(name, package))
        if folder_of(used) == folder_of(package):
            found.entry_points.extend(entry_points)
            _check_name(package, found)
        elif name_and_version(used) != name_and_version(package):
            found.notes.append(
                f"a package is installed twice: {_shown(used)} is used, {_shown(package)} is not; uninstall one of them"
            )
    return found


def spare_libraries() -> None:
    """Prevent torch and triton from reading all packages' entry points, which can make their imports fail.

    Sets environment variables, which child processes inherit.
    """
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    os.environ.setdefault("TRITON_BACKENDS_IN_TREE", "1")


def _packages(found: InstalledPlugins) -> Iterator[Distribution]:
    """Yield the installed packages."""
    packages = iter(distributions())
    while True:
        try:
            package = next(packages)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 (finders of other packages may raise anything)
            found.damaged.append(
                "the search for installed packages stopped, so that plugins may be missing: "
                + one_line(described(error))
            )
            return
        yield package


def _first_copy(name: str, package: Distribution) -> Distribution:
    """Return the first package of this name on `sys.path`: `package` itself, unless another one hides it."""
    try:
        return next(iter(distributions(name=name)), package)
    except Exception:  # noqa: BLE001 (reported by `_packages`)
        return package


def _check_name(package: Distribution, found: InstalledPlugins) -> None:
    try:
        has_name = "Name" in head_of(package)
    except Exception:  # noqa: BLE001 (a reason not to load the plugin: see `requirement`)
        return
    if not has_name:
        found.notes.append(
            f"package {_shown(package)} has no Name in its METADATA, so that it is damaged: reinstall it"
        )


def _shown(package: Distribution) -> str:
    name = " ".join(name_and_version(package)).strip()
    return f"{name} ({folder_of(package)})"
