"""The demo model's files: in the folder of this module, in the installed package."""

from __future__ import annotations

from pathlib import Path

from llmfw.core import ModelSource


class DemoModel(ModelSource):
    """The default model: small, of limited quality, but real."""

    tool_parser = "hermes"
    reasoning_parser = "qwen3"

    def folder(self) -> str:
        return str(Path(__file__).with_name("weights"))
