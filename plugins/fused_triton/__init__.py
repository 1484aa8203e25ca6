"""Triton kernels for matrix products with few rows, norms, activations and rotary embeddings."""

from llmfw.core import Register, hookimpl

_PACKAGE = "llmfw.plugins.fused_triton"


@hookimpl
def register_module_passes(register: Register) -> None:
    """Register four independent module passes.

    `triton-norm` runs first, because attention modules may contain norms; `triton-linear` runs last, because
    the other passes inspect linear layers.
    """
    register(
        "triton-norm",
        f"{_PACKAGE}.norms:NormPass",
        summary="RMS norms, together with the additions before them, in Triton; cuda",
        needs=("torch", "triton"),
        devices=("cuda",),
        rank=30,
    )
    register(
        "triton-swiglu",
        f"{_PACKAGE}.swiglu:SwigluPass",
        summary="silu(gate) times up in one Triton kernel; cuda",
        needs=("torch", "triton"),
        devices=("cuda",),
        rank=20,
    )
    register(
        "triton-rope",
        f"{_PACKAGE}.rotary:RotaryPass",
        summary="rotary embeddings of queries and keys, with their norms, in one Triton kernel; cuda",
        needs=("torch", "triton"),
        devices=("cuda",),
        rank=10,
    )
    register(
        "triton-linear",
        f"{_PACKAGE}.linear:LinearPass",
        summary="products of one or two rows with the weights of linear layers by an own kernel; cuda",
        needs=("torch", "triton"),
        devices=("cuda",),
        rank=5,
    )
