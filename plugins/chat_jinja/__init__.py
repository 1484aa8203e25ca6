"""Jinja chat templates, rendered in a sandbox: a model's own template, and templates to choose by name."""

from __future__ import annotations

from llmfw.core import Register, hookimpl

NEEDS = ("jinja2", "transformers")
NAMED = {
    "chatml": ("ChatML", "<|im_start|>role … <|im_end|>, tools as in Hermes and Qwen"),
    "llama-3": ("Llama3", "<|start_header_id|>role<|end_header_id|> … <|eot_id|>, with tools"),
    "mistral": ("Mistral", "[INST] … [/INST], as of Mistral 7B v0.3"),
    "gemma": ("Gemma", "<start_of_turn>role … <end_of_turn>"),
    "deepseek": ("DeepSeek", "<｜User｜> … <｜Assistant｜>, as of DeepSeek V3 and R1"),
}


@hookimpl
def register_chat_templates(register: Register) -> None:
    register(
        "jinja",
        "llmfw.plugins.chat_jinja.template:JinjaChatTemplate",
        summary="the model's own template, or the Jinja file that was named",
        needs=NEEDS,
    )
    for name, (class_name, summary) in NAMED.items():
        register(name, f"llmfw.plugins.chat_jinja.named:{class_name}", summary=summary, needs=NEEDS)
