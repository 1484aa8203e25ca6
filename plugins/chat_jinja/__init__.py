"""The chat template that comes with a model: Jinja, rendered in a sandbox."""

from __future__ import annotations

from llmfw.core import hookimpl
from llmfw.core.hookspecs import Register


@hookimpl
def register_chat_templates(register: Register) -> None:
    register(
        "jinja",
        "llmfw.plugins.chat_jinja.template:JinjaChatTemplate",
        summary="the model's own template, or the Jinja file that was named",
        needs=("jinja2", "transformers"),
    )
