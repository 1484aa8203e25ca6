"""Attention by torch's own operators: any device, and the reference for every other backend."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_attention_backends(register: Register) -> None:
    """Bring the backend `torch`."""
    register(
        "torch",
        "llmfw.plugins.attention_torch.backend:TorchAttention",
        summary="scaled_dot_product_attention over gathered pages; any device; the reference",
        needs=("torch",),
    )
