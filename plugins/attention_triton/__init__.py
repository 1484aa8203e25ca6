"""The attention backend `triton`: our own Triton kernels, for CUDA devices from Ampere on."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_attention_backends(register: Register) -> None:
    """Register the backend `triton`."""
    register(
        "triton",
        "llmfw.plugins.attention_triton.backend:TritonAttention",
        summary="our own paged kernels, split over keys for decoding; CUDA devices from Ampere on",
        needs=("triton",),
        devices=("cuda",),
        rank=20,  # measured: decodes faster than FlashInfer's kernels nearly everywhere
    )
