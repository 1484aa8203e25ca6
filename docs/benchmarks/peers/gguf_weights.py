"""Models whose weights are what a GGUF file's codes stand for: to tell what a peer's quantization loses."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from .models import model_file
from .peer import INSIDE, Home


def decoded_folder(source: Path, name: str, kind: str, work: Path, homes: Path) -> tuple[Path, int]:
    """Return a folder with the weights in float32 that a GGUF file of some type has of a model, and how many bytes they take there.

    Args:
        source: the model's folder, in bfloat16.
        name: of the files.
        kind: q8_0, q4_0 or q4_k_m.
        work: where files are written.
        homes: of the peers, of which `openvino` has the package `gguf`, and `llama.cpp` its own program.

    Raises:
        CannotInstallError: a file cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    plain, decoded = work / name, work / f"{name}.{kind}"
    for folder in (plain, decoded):
        shutil.copytree(source, folder, dirs_exist_ok=True)
    home = Home.of("openvino", homes)
    file = model_file(plain, kind, home, Home.of("llama.cpp", homes))
    numbers = decoded / "numbers.npz"
    num_bytes = int(home.run([home.python, INSIDE / "read_gguf.py", plain, file, numbers]))
    tensors = {name: torch.from_numpy(values) for name, values in np.load(numbers).items()}
    numbers.unlink()
    save_file(tensors, decoded / "model.safetensors", metadata={"format": "pt"})
    return decoded, num_bytes
