"""The patterns by which an adapter's config names modules, with the meaning that PEFT gives them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import regex

from llmfw.core.base.errors import ModelError

ALL_LINEAR = "all-linear"
MATCH_S = 1.0
"""Seconds that all matches of one adapter's patterns may take together. Some take years."""
_TOO_SLOW = f"the patterns of its modules take more than {MATCH_S:g} s to match; write simpler ones"


class MatchTime:
    """The time that is left for the matches of one adapter's patterns. It runs only while patterns match."""

    def __init__(self) -> None:
        self._left_s = MATCH_S

    def match(self, pattern: str, name: str, *, is_whole: bool = False) -> regex.Match[str] | None:
        """Match a regular expression at the start of a module's name, or with the whole name.

        Raises:
            ModelError: the pattern is not a regular expression, or the time is over.
        """
        begun = time.perf_counter()
        try:
            match = regex.fullmatch if is_whole else regex.match
            return match(pattern, name, timeout=max(self._left_s, 1e-6))
        except regex.error as error:
            raise ModelError(f"a pattern of its modules is not a regular expression: {error}") from error
        except TimeoutError:
            raise ModelError(_TOO_SLOW) from None
        finally:
            self._left_s -= time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class ModulePatterns:
    """The modules that an adapter adapts.

    Attributes:
        targets: a regular expression for whole names, "all-linear", or names and ends of names.
        excluded: patterns as in `targets`, for modules to leave out.
        layers: index, or indices, of the layers to adapt, if `targets` are names; None: all.
        layers_names: names of the list of layers, as patterns; empty: any name.
    """

    targets: str | Sequence[str]
    excluded: str | Sequence[str] = ()
    layers: int | Sequence[int] | None = None
    layers_names: str | Sequence[str] = ()

    def chosen(self, names: Iterable[str], heads: Collection[str], time: MatchTime) -> list[str]:
        """Return the names of the linear layers that an adapter adapts.

        Args:
            names: names of the model's linear layers.
            heads: names of the model's output layers, which "all-linear" leaves out.
            time: the time for matching.

        Raises:
            ModelError: a pattern is not a regular expression, or takes too long.
        """
        return [
            name for name in names if not self._is_excluded(name, time) and self._is_target(name, heads, time)
        ]

    def _is_excluded(self, name: str, time: MatchTime) -> bool:
        if isinstance(self.excluded, str):
            return time.match(self.excluded, name, is_whole=True) is not None
        return _ends_in(name, self.excluded)

    def _is_target(self, name: str, heads: Collection[str], time: MatchTime) -> bool:
        if isinstance(self.targets, str):
            if self.targets.lower() == ALL_LINEAR:
                return name not in heads
            return time.match(self.targets, name, is_whole=True) is not None
        return _ends_in(name, self.targets) and self._has_layer(name, time)

    def _has_layer(self, name: str, time: MatchTime) -> bool:
        """Return whether a module is in a layer to adapt. The layer is the first number in the name."""
        if self.layers is None or self.layers == []:
            return True
        patterns = [self.layers_names] if isinstance(self.layers_names, str) else self.layers_names
        expressions = [rf"(?:^|.*?\.){pattern}\.(\d+)\." for pattern in patterns] or [r".*?\.[^.]*\.(\d+)\."]
        matches = (time.match(each, name) for each in expressions)
        found = next((match for match in matches if match), None)
        layers = [self.layers] if isinstance(self.layers, int) else self.layers
        return found is not None and int(found.group(1)) in layers


def matching_pattern(patterns: Iterable[str], name: str, time: MatchTime) -> str | None:
    """Return the first pattern that matches the end of a module's name; None if none does.

    Raises:
        ModelError: a pattern is not a regular expression, or takes too long.
    """
    return next((each for each in patterns if time.match(rf"(.*\.)?({each})$", name)), None)


def _ends_in(name: str, ends: Iterable[str]) -> bool:
    return any(name == end or name.endswith(f".{end}") for end in ends)
