"""Base class of adapters' replacements for the whole `forward` of attention modules."""

from __future__ import annotations

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
