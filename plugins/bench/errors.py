"""The error of a benchmark that cannot run."""

from __future__ import annotations

from llmfw.core import LLMFWError


class BenchError(LLMFWError):
    """The server cannot be reached, rejects requests or reports no token counts; or an option is wrong."""
