"""Finds quantized layers by the names of their tensors, and checks shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmfw.core import ModelError, StoredTensor
from llmfw.core.model.files.stored_dtypes import torch_dtype


def modules_with(tensors: Mapping[str, StoredTensor], leaf: str) -> Iterator[str]:
    """Yield the names of the modules that have a tensor of this name."""
    for name in tensors:
        module, _, last = name.rpartition(".")
        if module and last == leaf:
            yield module


def require(
    tensors: Mapping[str, StoredTensor], name: str, dtypes: Sequence[str], shape: Sequence[int | None]
) -> StoredTensor:
    """Return the format of a stored tensor.

    Args:
        dtypes: torch's names of the valid dtypes.
        shape: size of each dimension; None: any size above 0.

    Raises:
        ModelError: the tensor is missing, or has another shape or dtype.
    """
    found = tensors.get(name)
    if found is None:
        raise ModelError(f"{name} is missing; download the model again")
    dtype = str(torch_dtype(found.dtype)).removeprefix("torch.")
    if dtype not in dtypes:
        raise ModelError(
            f"{name} is stored as {dtype}; the format has {' or '.join(dtypes)}: compare the files with config.json"
        )
    fits = len(found.shape) == len(shape) and all(
        size == asked or (asked is None and size > 0) for size, asked in zip(found.shape, shape, strict=True)
    )
    if not fits:
        asked = ", ".join("any" if size is None else str(size) for size in shape)
        raise ModelError(
            f"{name} is {list(found.shape)}; config.json and the layer's other tensors say [{asked}]: correct either of them"
        )
    return found
