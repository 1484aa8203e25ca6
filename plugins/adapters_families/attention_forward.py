"""Base class of adapters' replacements for the whole `forward` of attention modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmfw.core import Attend


class AttentionForward:
    """Base class of replacements for the `forward` of an attention module. Derived classes are callable.

    Args:
        module: attention module whose projections are used.
        attend: llmfw's attention.
    """

    def __init__(self, module: Any, attend: Attend) -> None:
        self._module = module
        self._attend = attend


class RotaryForward(AttentionForward):
    """Base class of replacements that apply rotary positions.

    Args:
        module, attend: as in `AttentionForward`.
        rotate: function of the model's family that applies the positions to queries and keys.
    """

    def __init__(self, module: Any, attend: Attend, rotate: Callable[..., Any]) -> None:
        super().__init__(module, attend)
        self._rotate = rotate
