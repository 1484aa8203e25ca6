"""The attention backend `torch`: torch's own operators, on any device; the reference for all others."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_attention_backends(register: Register) -> None:
    """Register the backend `torch`."""
    register(
        "torch",
        "llmfw.plugins.attention_torch.backend:TorchAttention",
        summary="scaled_dot_product_attention over gathered pages; any device; the reference",
        needs=("torch",),
    )
