"""The bundled drafter: `prompt-lookup`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_drafters(register: Register) -> None:
    register(
        "prompt-lookup",
        "llmfw.plugins.drafters.prompt_lookup:PromptLookup",
        summary="what came after the same tokens before, in prompt or output",
    )
