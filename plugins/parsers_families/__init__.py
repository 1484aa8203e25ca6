"""Tool call parsers and reasoning parsers, one file per model family."""

from __future__ import annotations

from llmfw.core import Register, hookimpl

_HERE = "llmfw.plugins.parsers_families"


@hookimpl
def register_reasoning_parsers(register: Register) -> None:
    register(
        "qwen3",
        f"{_HERE}.qwen3_reasoning:Qwen3ReasoningParser",
        summary="<think>…</think> before the answer (Qwen3 and many others)",
    )
    register(
        "deepseek_r1",
        f"{_HERE}.deepseek:DeepSeekR1ReasoningParser",
        summary="reasoning from the beginning up to </think> (DeepSeek-R1 and its distillations)",
    )
    register(
        "mistral",
        f"{_HERE}.mistral:MistralReasoningParser",
        summary="[THINK]…[/THINK] before the answer (Magistral)",
    )
    register(
        "gpt_oss",
        f"{_HERE}.harmony:GptOssReasoningParser",
        summary="the analysis channel of the Harmony format (gpt-oss)",
    )


@hookimpl
def register_tool_parsers(register: Register) -> None:
    register(
        "hermes",
        f"{_HERE}.hermes:HermesToolParser",
        summary="<tool_call>{JSON}</tool_call> (Hermes, Qwen and many others)",
    )
    register(
        "llama3_json",
        f"{_HERE}.llama3_json:Llama3JsonToolParser",
        summary='{"name": …, "parameters": {…}}, several separated by ; (Llama 3.1 to 3.3)',
    )
    register(
        "pythonic",
        f"{_HERE}.pythonic:PythonicToolParser",
        summary="[name(key=value), …] (Llama 3.2 and 4)",
    )
    register(
        "mistral",
        f"{_HERE}.mistral:MistralToolParser",
        summary="[TOOL_CALLS]name[ARGS]{JSON}, or [TOOL_CALLS] with an array of calls (Mistral)",
    )
    register(
        "deepseek_v3",
        f"{_HERE}.deepseek:DeepSeekV3ToolParser",
        summary="arguments in a fenced block between <｜tool▁call▁begin｜> and <｜tool▁call▁end｜> (DeepSeek-V3, R1)",
    )
    register(
        "deepseek_v31",
        f"{_HERE}.deepseek:DeepSeekV31ToolParser",
        summary="name<｜tool▁sep｜>{JSON} between the same markers (DeepSeek-V3.1)",
    )
    register(
        "gpt_oss",
        f"{_HERE}.harmony:GptOssToolParser",
        summary="messages to=functions.name in the commentary channel of the Harmony format (gpt-oss)",
    )
    register(
        "qwen3_coder",
        f"{_HERE}.qwen3_coder:Qwen3CoderToolParser",
        summary="<function=name><parameter=key>value</parameter></function> (Qwen3-Coder)",
    )
    register(
        "json_calls",
        f"{_HERE}.json_calls:JsonCallsToolParser",
        summary='[{"name": …, "arguments": {…}}, …] and nothing else (calls that a grammar enforces)',
    )
