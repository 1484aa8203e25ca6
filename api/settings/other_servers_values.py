"""Well-known values of options in other servers, and what to use here, for errors about unknown values."""

from __future__ import annotations

from collections.abc import Iterator

_CHECKPOINT = "a quantized checkpoint needs no option; to quantize when the model is loaded, use int8 or int4"

# Field of the setting, values (separated by spaces, all with the same advice), what to do here.
_ROWS = (
    ("tool_parser", "qwen qwen25", "use hermes"),
    ("tool_parser", "qwen3_xml", "use qwen3_coder"),
    ("tool_parser", "llama3", "use llama3_json"),
    ("tool_parser", "llama4 llama4_json llama4_pythonic", "use pythonic"),
    ("tool_parser", "deepseekv3", "use deepseek_v3"),
    ("tool_parser", "deepseekv31", "use deepseek_v31"),
    ("tool_parser", "openai gpt-oss", "use gpt_oss"),
    ("reasoning_parser", "deepseek-r1", "use deepseek_r1"),
    ("reasoning_parser", "openai_gptoss gpt-oss", "use gpt_oss"),
    ("quantization", "awq awq_marlin gptq gptq_marlin fp8 compressed-tensors", _CHECKPOINT),
    ("load_format", "safetensors", "use auto, which reads safetensors"),
    ("load_format", "gguf", "use auto, and give the GGUF file as MODEL"),
)  # fmt: skip


def foreign_values() -> Iterator[tuple[str, str, str]]:
    """Yield the field of a setting, a value of other servers, and the advice."""
    for field, values, here in _ROWS:
        for value in values.split():
            yield field, value, here


def advice_on_value(field: str, value: object) -> str | None:
    """Return what to do in place of another server's value of a setting; None for other values."""
    return next((here for name, known, here in foreign_values() if (name, known) == (field, value)), None)
