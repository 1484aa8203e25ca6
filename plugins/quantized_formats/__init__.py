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
    register(
        "awq",
        "llmfw.plugins.quantized_formats.awq:AWQ",
        summary="AWQ, 4 bits, in the layout gemm",
        needs=("torch",),
    )
    register(
        "fp8",
        "llmfw.plugins.quantized_formats.fp8:FP8",
        summary="floats of 8 bits with a scale for each block (DeepSeek, Qwen3-FP8) or weight",
        needs=("torch",),
    )
    register(
        "compressed-tensors",
        "llmfw.plugins.quantized_formats.compressed_tensors:CompressedTensors",
        summary="integers of 4 and 8 bits, floats of 8, and NVFP4, of llm-compressor",
        needs=("torch",),
    )
