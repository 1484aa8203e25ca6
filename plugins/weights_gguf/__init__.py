"""The bundled weight loader `gguf`: llama.cpp's model files, including their config and tokenizer."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_weight_loaders(register: Register) -> None:
    register(
        "gguf",
        "llmfw.plugins.weights_gguf.gguf_loader:GGUFLoader",
        summary="one file of llama.cpp, model.gguf; dequantized once to the model's dtype",
        needs=("gguf",),
        rank=80,
    )
