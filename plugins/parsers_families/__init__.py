"""Tool and reasoning parsers, one file per model family."""

from __future__ import annotations

from llmfw.core import hookimpl
from llmfw.core.hookspecs import Register


@hookimpl
def register_reasoning_parsers(register: Register) -> None:
    register(
        "qwen3",
        "llmfw.plugins.parsers_families.qwen3:Qwen3ReasoningParser",
        summary="<think>…</think> before the answer (Qwen3, DeepSeek-R1 and many others)",
    )


@hookimpl
def register_tool_parsers(register: Register) -> None:
    register(
        "hermes",
        "llmfw.plugins.parsers_families.hermes:HermesToolParser",
        summary="<tool_call>{JSON}</tool_call> (Hermes, Qwen and many others)",
    )
