"""A quantized format for llmfw: BitNet."""

from llmfw.core import hookimpl


@hookimpl
def register_quantized_formats(register):
    register(
        "bitnet", "llmfw_bitnet.format:BitNet", summary="BitNet: weights of -1, 0 and 1", needs=("torch",)
    )
