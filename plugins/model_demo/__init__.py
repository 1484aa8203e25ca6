"""The embedded demo model: a small Llama, its tokenizer, its chat template and what trained them."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_models(register: Register) -> None:
    register(
        "demo", "llmfw.plugins.model_demo.source:DemoModel", summary="a small model that comes with llmfw"
    )
