"""The error of a simulation that cannot run."""

from __future__ import annotations

from llmfw.core import LLMFWError


class SimulatorError(LLMFWError):
    """A trace, a profile or a setting is unusable; the message names the place, and a valid value."""
