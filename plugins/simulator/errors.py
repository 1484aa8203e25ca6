"""Why nothing can be simulated."""

from __future__ import annotations

from llmfw.core import LLMFWError


class SimulatorError(LLMFWError):
    """A trace, a profile or a setting that cannot be used; the message says where and what would be right."""
