"""The embedded demo model: a small Llama with tokenizer and chat template, and the code that trained it."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_models(register: Register) -> None:
    register(
        "demo", "llmfw.plugins.model_demo.source:DemoModel", summary="a small model that comes with llmfw"
    )
