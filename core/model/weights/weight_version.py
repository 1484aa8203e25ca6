"""Computes an id for the weights in a model folder. It is cheap to compute, and changes with the weights.

The id is a hash of file names, file sizes, safetensors headers and samples of the bytes. A change of a few
numbers between two samples does not change the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ..files.model_folder import model_files

WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
NUM_SAMPLES = 64  # per file
SAMPLE_BYTES = 4096
MAX_HEADER_BYTES = 100 * 2**20  # limit of the safetensors format


def weight_version(model: str, load_format: str = "auto") -> str:
    """Return an id of a model's weights: 16 hex digits of a hash.

    The id is "dummy" for random weights, and "" for a folder without weights.

    Args:
        model: folder, or a hub id whose weights were read before.

    Raises:
        ModelError: the files of the hub id cannot be found.
    """
    if load_format == "dummy":
        return "dummy"
    folder = model_files(model)
    files = sorted(path for pattern in WEIGHT_FILES for path in folder.glob(pattern) if path.is_file())
    return version_of(files) if files else ""


def version_of(files: Iterable[Path]) -> str:
    """Return an id of the contents of some files, in this order: 16 hex digits of a hash."""
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                header = int.from_bytes(file.read(8), "little")
                digest.update(file.read(min(header, MAX_HEADER_BYTES)))
            for i in range(NUM_SAMPLES):
                file.seek(max(0, (size - SAMPLE_BYTES) * i // (NUM_SAMPLES - 1)))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]
