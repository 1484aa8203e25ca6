"""Reads a model's `quantization_config`, and refuses values that llmfw does not support."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from llmfw.core import ModelError

ValueT = TypeVar("ValueT")


class Settings:
    """Settings of a quantization method.

    Args:
        given: the settings, by name.
        where: name of the object with the settings, for error messages.
    """

    def __init__(self, given: Mapping[str, Any], where: str = "quantization_config") -> None:
        self._given = given
        self._where = where

    def one_of(self, key: str, choices: Sequence[ValueT], default: ValueT | None = None) -> ValueT:
        """Return a setting whose value must be one of the choices.

        Args:
            default: value if the setting is missing or null. If it is None, the setting is required, unless
                None is a choice.

        Raises:
            ModelError: the setting has another value.
        """
        found = self._given.get(key)
        found = default if found is None else found
        for choice in choices:
            if type(found) is type(choice) and found == choice:
                return choice
        known = ", ".join(repr(choice) for choice in choices)
        raise self.refusal(key, f"llmfw reads {known}")

    def group_size(self, key: str = "group_size") -> int:
        """Return the number of inputs that share a scale; -1: all inputs.

        Raises:
            ModelError: the setting is not -1 or a positive integer.
        """
        found = self._given.get(key)
        if type(found) is not int or (found < 1 and found != -1):
            raise self.refusal(key, "it must be -1 or a positive integer")
        return found

    def first_of(self, *keys: str) -> str:
        """Return the first of several names under which a setting is given; if no name is, the first name."""
        return next((key for key in keys if self._given.get(key) is not None), keys[0])

    def block(self, key: str) -> tuple[int, int] | None:
        """Return the numbers of outputs and inputs of a block; None if the setting is missing or null.

        Raises:
            ModelError: the setting is not a pair of positive integers.
        """
        found = self._given.get(key)
        if found is None:
            return None
        if not isinstance(found, list) or len(found) != 2 or any(type(n) is not int or n < 1 for n in found):
            raise self.refusal(key, "it must be two positive integers")
        return found[0], found[1]

    def refuse(self, *keys: str) -> None:
        """Raise ModelError if any of the settings is given with a value other than null, false or empty."""
        for key in keys:
            if self._given.get(key):
                raise self.refusal(key, "llmfw does not compute this")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raise ModelError if a setting is given that is not known, with a value other than null, false or empty."""
        for key in self._given:
            if key not in known and self._given[key]:
                raise self.refusal(key, "llmfw does not know this setting, which may change the weights")

    def refusal(self, key: str, reason: str) -> ModelError:
        """Return an error about a setting."""
        return ModelError(
            f"{self._where}.{key} is {self._given.get(key)!r:.80} in config.json; {reason}: take another checkpoint of the model"
        )


def num_groups(layer: str, in_features: int, group_size: int) -> int:
    """Return the number of groups of a layer's inputs.

    Args:
        group_size: number of inputs in a group; -1: all.

    Raises:
        ModelError: the size does not divide the number of inputs.
    """
    if group_size == -1:
        return 1
    if in_features % group_size:
        raise ModelError(
            f"{layer} has {in_features} inputs, which groups of {group_size} do not divide; correct group_size in config.json"
        )
    return in_features // group_size
