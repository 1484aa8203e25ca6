"""Why a benchmark cannot run."""

from __future__ import annotations

from llmfw.core import LLMFWError


class BenchError(LLMFWError):
    """The server cannot be reached, refuses requests, or does not say what is needed to count tokens."""
