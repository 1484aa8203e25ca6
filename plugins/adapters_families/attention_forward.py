"""What the adapters share that replace the whole `forward` of attention modules."""

from __future__ import annotations

from typing import Any

from llmfw.core import Attend


class AttentionForward:
    """Base class of replacements for the `forward` of an attention module. Derived classes are callable.

    Args:
        module: the module, whose projections are used.
        attend: llmfw's attention.
    """

    def __init__(self, module: Any, attend: Attend) -> None:
        self._module = module
        self._attend = attend
