"""The token sampler `triton`: applies all filters without sorting, in a few passes over the logits."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_token_samplers(register: Register) -> None:
    """Register the token sampler `triton`."""
    register(
        "triton",
        "llmfw.plugins.sampling_triton.sampler:TritonSampler",
        summary="all filters in five Triton kernels, or two without filters; cuda",
        needs=("torch", "triton"),
        devices=("cuda",),
        rank=10,
    )
