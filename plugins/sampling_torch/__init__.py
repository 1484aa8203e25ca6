"""The token sampler `torch`: torch's own operators, on any device; the reference for all others."""

from llmfw.core import Register, hookimpl


@hookimpl
def register_token_samplers(register: Register) -> None:
    """Register the token sampler `torch`."""
    register(
        "torch",
        "llmfw.plugins.sampling_torch.sampler:TorchSampler",
        summary="sorts a few candidates, or selects without a sort; any device; the reference",
        needs=("torch",),
    )
