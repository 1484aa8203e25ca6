"""Chooses the files of a model that serving reads."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

from llmfw.core.model.files.model_folder import HUB_PATTERNS

from .errors import HubError

SAFE, PICKLED = "*.safetensors", "pytorch_model*.bin"
COPIES = ("consolidated*", "original/*")
"""Weights in another form than the one that transformers reads."""


def wanted_files(model: str, files: Sequence[str], include: Sequence[str] = ()) -> list[str]:
    """Return the names of the files to download, sorted.

    These are the small files of the model's folder, and the weights: in safetensors, or, if there are no
    safetensors files, in PyTorch's own format. Leaves out files in subfolders, and other forms of the same
    weights.

    Args:
        files: names of all files of the model.
        include: patterns of further files, such as "*.Q4_K_M.gguf", in place of the weights above.

    Raises:
        HubError: there are no weights, or a pattern matches nothing.
    """
    top = [name for name in files if "/" not in name and not _matches(name, COPIES)]
    small = [name for name in top if _matches(name, HUB_PATTERNS)]
    weights = _included(model, files, include) if include else _weights(model, files, top)
    return sorted({*small, *weights})


def _weights(model: str, files: Sequence[str], top: Sequence[str]) -> list[str]:
    for pattern in (SAFE, PICKLED):
        if found := [name for name in top if fnmatch(name, pattern)]:
            return found
    other = sorted(name for name in files if name.endswith((".gguf", ".safetensors", ".bin", ".pt", ".onnx")))
    hint = f"choose among its files by --include: {', '.join(other[:10])}" if other else "it has none at all"
    raise HubError(f"{model} has no weights that llmfw reads by itself; {hint}")


def _included(model: str, files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in files):
            raise HubError(f"{model} has no file {pattern!r}; it has {', '.join(sorted(files)[:20])}")
    return [name for name in files if _matches(name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
