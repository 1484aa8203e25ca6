"""Checks whether an installed package's requirements accept this version of llmfw.

pip checks requirements when it installs a package. This check finds conflicts if you install a package
without dependencies, or upgrade only llmfw.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distribution

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.described import described

from .one_line import one_line
from .package_metadata import header_of, name_and_version

_PLAIN = re.compile(r"llmfw[-_.]engine *\(?((?:[<>]=?[ ]*\d+(?:\.\d+)*[ ]*,?[ ]*)+)\)?", re.IGNORECASE)
_BOUND = re.compile(r"([<>]=?) *([\d.]+)")
_REQUIREMENT = re.compile(r"^Requires-Dist: *(llmfw[-_.]engine\b[^\n]*)$", re.MULTILINE | re.IGNORECASE)


def reason_against(package: Distribution | None) -> str | None:
    """Return why the plugins of a package must not be loaded; None if the package accepts this version of
    llmfw.

    A development version counts as the release that follows it.
    """
    if package is None:
        return None
    # Searches the text itself: parsing it as an email, as importlib.metadata does, takes longer than all the rest.
    try:
        head = header_of(package)
    except Exception as error:  # noqa: BLE001 (damaged metadata raises various exceptions)
        return f"its METADATA cannot be read: {one_line(described(error))}; reinstall the package"
    for line in _REQUIREMENT.findall(head):
        asked_of_us = re.match(r"llmfw[-_.]engine(?![\w.-])", line, re.IGNORECASE)
        if not asked_of_us or not re.search(r"[<>=~!]", line.partition(";")[0]):
            continue
        _, here = name_and_version(distribution(DISTRIBUTION))
        if is_plainly_met(line, here):
            continue
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.version import Version

        try:
            asked = Requirement(line)
        except InvalidRequirement:
            return f"its requirement {one_line(line)!r} is not valid"
        if asked.marker is not None and not asked.marker.evaluate({"extra": ""}):
            continue
        if not asked.specifier.contains(Version(here).base_version, prereleases=True):
            return f"it needs {asked.name}{asked.specifier}, and this is llmfw {here}"
    return None


def is_plainly_met(requirement: str, version: str) -> bool:
    """Return whether a requirement has only bounds, such as `llmfw-engine>=0.1,<0.3`, and accepts a version.

    If False, the caller must check with `packaging`, whose import takes longer than all other work at a
    start.
    """
    bounds = _PLAIN.fullmatch(requirement.strip())
    if bounds is None or not re.fullmatch(r"\d+(\.\d+)*", version):
        return False
    here = _release(version)
    return all(_holds(here, sign, _release(bound)) for sign, bound in _BOUND.findall(bounds[1]))


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers in a version without trailing zeros, such as (1,) for both "1.0" and "1"."""
    numbers = [int(number) for number in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _holds(here: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    if here == bound:
        return sign.endswith("=")
    return here < bound if sign[0] == "<" else here > bound
