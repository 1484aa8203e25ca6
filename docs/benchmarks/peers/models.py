"""The models that the peers serve: made here with random weights, and written as each peer reads them."""

from __future__ import annotations

from pathlib import Path

from . import llama_cpp
from .peer import INSIDE, Home

MODELS = {"smol": "smollm2-135m-shape", "q05": "qwen2-0.5b-shape"}
"""Short name → name of the shape, and of the folder."""


def model_folder(model: str, work: Path) -> Path:
    """Return the folder of a model with weights and tokenizer, made if it is not there."""
    folder = work / MODELS[model]
    if not (folder / "model.safetensors").exists():
        from make_model import make_model  # with torch and transformers

        make_model(folder, MODELS[model])
    return folder


def model_file(folder: Path, weights: str, home: Home, quantizer: Home) -> Path:
    """Return what a peer is given: the folder itself, or a GGUF file beside it, written if it is not there.

    Args:
        weights: "safetensors", or the type of a GGUF file.
        home: an environment that has the package `gguf`.
        quantizer: that of llama.cpp, whose program makes the types that `gguf` cannot.

    Raises:
        CannotInstallError: the file cannot be written.
    """
    if weights == "safetensors":
        return folder
    file = folder.with_name(f"{folder.name}.{weights}.gguf")
    if file.exists():
        return file
    part = file.with_suffix(".part")
    command: list[str | Path]
    if weights == "q4_k_m":
        source = model_file(folder, "bf16", home, quantizer)
        command = [llama_cpp.program(quantizer, "llama-quantize"), source, part, "Q4_K_M"]
    else:
        command = [home.python, "-P", INSIDE / "write_gguf.py", folder, part, weights]
    home.run(command)
    part.rename(file)
    return file
