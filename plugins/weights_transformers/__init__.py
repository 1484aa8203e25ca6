"""The bundled weight loaders `safetensors` and `bin`, for the file formats that transformers reads."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_weight_loaders(register: Register) -> None:
    register(
        "safetensors",
        "llmfw.plugins.weights_transformers.safetensors_loader:SafetensorsLoader",
        summary="model.safetensors, or shards with an index; mapped into memory",
        rank=100,
    )
    register(
        "bin",
        "llmfw.plugins.weights_transformers.bin_loader:BinLoader",
        summary="pytorch_model.bin, or shards with an index; no code in them is run",
        rank=90,
    )
