"""The folder for files that llmfw can write again, such as converted models."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return the folder `llmfw` in `$XDG_CACHE_HOME` (default: `~/.cache`). The folder may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmfw"
