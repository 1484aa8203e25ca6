"""The patterns by which an adapter's config names modules, with the meaning that PEFT gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import regex

from llmfw.core.base.errors import ModelError

ALL_LINEAR = "all-linear"
MATCH_S = 1.0
"""Seconds that a pattern may take for one name. Some take years."""
_TOO_SLOW = f"a pattern of its modules takes more than {MATCH_S:g} s for one name; write a simpler one"


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

    def chosen(self, names: Iterable[str], heads: Collection[str]) -> list[str]:
        """Return the names of the linear layers that an adapter adapts.

        Args:
            names: names of the model's linear layers.
            heads: names of the model's output layers, which "all-linear" leaves out.

        Raises:
            ModelError: a pattern is not a regular expression, or takes too long.
        """
        try:
            return [name for name in names if not self._is_excluded(name) and self._is_target(name, heads)]
        except regex.error as error:
            raise ModelError(f"a pattern of its modules is not a regular expression: {error}") from error
        except TimeoutError:
            raise ModelError(_TOO_SLOW) from None

    def _is_excluded(self, name: str) -> bool:
        if isinstance(self.excluded, str):
            return regex.fullmatch(self.excluded, name, timeout=MATCH_S) is not None
        return _ends_in(name, self.excluded)

    def _is_target(self, name: str, heads: Collection[str]) -> bool:
        if isinstance(self.targets, str):
            if self.targets.lower() == ALL_LINEAR:
                return name not in heads
            return regex.fullmatch(self.targets, name, timeout=MATCH_S) is not None
        return _ends_in(name, self.targets) and self._has_layer(name)

    def _has_layer(self, name: str) -> bool:
        """Return whether a module is in a layer to adapt. The layer is the first number in the name."""
        if self.layers is None or self.layers == []:
            return True
        patterns = [self.layers_names] if isinstance(self.layers_names, str) else self.layers_names
        expressions = [rf"(?:^|.*?\.){pattern}\.(\d+)\." for pattern in patterns] or [r".*?\.[^.]*\.(\d+)\."]
        matches = (regex.match(each, name, timeout=MATCH_S) for each in expressions)
        found = next((match for match in matches if match), None)
        layers = [self.layers] if isinstance(self.layers, int) else self.layers
        return found is not None and int(found.group(1)) in layers


def matching_pattern(patterns: Iterable[str], name: str) -> str | None:
    """Return the first pattern that matches the end of a module's name; None if none does.

    Raises:
        ModelError: a pattern is not a regular expression, or takes too long.
    """
    try:
        return next(
            (each for each in patterns if regex.match(rf"(.*\.)?({each})$", name, timeout=MATCH_S)), None
        )
    except regex.error as error:
        raise ModelError(f"a pattern of its modules is not a regular expression: {error}") from error
    except TimeoutError:
        raise ModelError(_TOO_SLOW) from None


def _ends_in(name: str, ends: Iterable[str]) -> bool:
    return any(name == end or name.endswith(f".{end}") for end in ends)
