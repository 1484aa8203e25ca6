"""The bundled quantization schemes: `int8` and `int4`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_quantization_schemes(register: Register) -> None:
    register(
        "int8",
        "llmfw.plugins.quantization_int.schemes:Int8",
        summary="8 bits per weight, and a scale for 32 weights; about as exact as bfloat16",
        needs=("torch",),
    )
    register(
        "int4",
        "llmfw.plugins.quantization_int.schemes:Int4",
        summary="4 bits per weight, 8 in the head, and a scale for 32 weights",
        needs=("torch",),
    )
