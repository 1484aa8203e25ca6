"""The bundled quantized formats. A format's name is the `quant_method` of `config.json`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_quantized_formats(register: Register) -> None:
    register(
        "gptq",
        "llmfw.plugins.quantized_formats.gptq:GPTQ",
        summary="GPTQ, 4 or 8 bits, with or without act-order",
        needs=("torch",),
    )
