"""The source of the demo model, whose files are in the installed package."""

from __future__ import annotations

from pathlib import Path

from llmfw.core import ModelSource


class DemoModel(ModelSource):
    """The model that is served if none is named.

    It is small and not clever, but really generates its answers.
    """

    tool_parser = "hermes"
    reasoning_parser = "qwen3"

    def folder(self) -> str:
        return str(Path(__file__).with_name("weights"))
