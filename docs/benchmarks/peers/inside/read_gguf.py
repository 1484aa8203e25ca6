"""Write the numbers that a GGUF file's weights stand for, under transformers' names. Runs where the package `gguf` is.

    python read_gguf.py FOLDER FILE TARGET.npz

FOLDER is the model that FILE was made of by write_gguf.py, whatever happened to its weights since. All in float32. Prints how many
bytes they take in FILE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from write_gguf import gguf_name, tensors


def main() -> None:
    """Write the file."""
    folder, file, target = map(Path, sys.argv[1:])
    config = json.loads((folder / "config.json").read_text())
    stored = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    found = {}
    for name, values in tensors(folder / "model.safetensors"):
        tensor = stored[gguf_name(name)]
        numbers = dequantize(tensor.data, tensor.tensor_type).reshape(values.shape).astype(np.float32)
        if config["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            numbers = apart(
                numbers, config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            )
        found[name] = numbers
    np.savez(target, **found)
    print(sum(int(tensor.n_bytes) for tensor in stored.values()))


def apart(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return what `interleaved` of write_gguf.py was given."""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


if __name__ == "__main__":
    main()
