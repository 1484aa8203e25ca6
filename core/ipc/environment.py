"""The environment of processes that llmfw starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

_SECRETS = ("LLMFW_API_KEY", "LLMFW_ADMIN_API_KEY", "OPENAI_API_KEY")


def child_environment() -> Mapping[str, str]:
    """Return this process's environment without API keys, which children neither need nor can protect."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS}
