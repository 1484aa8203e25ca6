"""Measures the memory of quantized layers, so that memory is planned with their actual sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import nn

from llmfw.core.plugin.returned import WrongReturnError


def check_memory(module: nn.Module, num_bytes: int, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
    """Raise WrongReturnError unless a quantized layer keeps as much memory as its scheme says.

    Args:
        num_bytes: size that the scheme has given, in bytes, without the bias.
        bias: bias of the layer that was quantized, or None.
        dtype: dtype of the layer.
    """
    for name, parameter in module.named_parameters():
        if parameter.dtype != dtype or parameter.dim() > 1:
            raise WrongReturnError(
                f"its module has the parameter {name!r}; register a buffer in its place, because only the bias is "
                "a parameter"
            )
    if bias is not None:
        num_bytes += bias.nbytes
    if (total := held_bytes(module, bias)) != num_bytes:
        with_bias = "" if bias is None else " with its bias"
        raise WrongReturnError(
            f"its module keeps {total:,} bytes in buffers and parameters, and num_bytes() gives {num_bytes:,}{with_bias}; "
            "all that it keeps must be counted, and registered as buffers"
        )


def held_bytes(module: nn.Module, bias: torch.Tensor | None) -> int:
    """Return the memory in bytes that a quantized layer keeps in its parameters and buffers.

    Args:
        bias: bias of the layer that was quantized, or None. The bias may be part of a larger storage, because
            files are read into large storages.
    """
    sizes = _storages(module)
    shared = None if bias is None else bias.untyped_storage().data_ptr()
    if bias is not None and shared in sizes:
        sizes[shared] = bias.nbytes
    return sum(sizes.values())


def check_shared_memory(module: nn.Module, head: nn.Module) -> None:
    """Raise WrongReturnError if an embedding layer keeps memory that the head does not keep."""
    if own := _storages(module).keys() - _storages(head).keys():
        raise WrongReturnError(
            f"its embedding layer has {len(own)} tensors of its own; it must share the buffers of the head"
        )


def _storages(module: nn.Module) -> dict[int, int]:
    """Return the memory of a module's tensors: address → bytes. A view keeps all memory of its base."""
    return {
        storage.data_ptr(): storage.nbytes()
        for storage in (tensor.untyped_storage() for tensor in _tensors(module))
        if storage.nbytes()
    }


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    return chain(module.parameters(), module.buffers())
