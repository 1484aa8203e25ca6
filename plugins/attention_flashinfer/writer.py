"""Chooses the code that writes new keys and values: a Triton kernel, or torch's operators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from llmfw.core import KVStorage, LayerSpec
from llmfw.core.interfaces.kv_dtype import as_bytes

logger = logging.getLogger(__name__)

Writer = Callable[[KVStorage, int, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""(storage, index of the layer, slots [T], key [T, Hkv, D], value [T, Hkv, Dv]) → None, as `KVStorage.write`."""

TRIAL_SLOTS = (2, 0, 3)
LARGEST_IN_TRIAL = 600.0
"""Largest number in the trial. It exceeds the range of fp8_e4m3, so that the trial includes saturation."""


def choose_writer(layers: Iterable[LayerSpec], storage: KVStorage) -> Writer:
    """Return the kernel's writer if it stores the same numbers as `storage.write`; else `KVStorage.write`.

    The trial also compiles the kernel, so that no request or graph capture waits for the compiler.
    """
    try:
        writer = _kernel_writer()
        for layer in {_shape(layer): layer for layer in layers}.values():
            _check(writer, layer, storage)
    except Exception as error:  # noqa: BLE001 - from importing Triton, its compiler or the driver
        logger.warning(
            "Keys and values are written by torch's operators, not by the Triton kernel: %s", error
        )
        return KVStorage.write
    return writer


def _kernel_writer() -> Writer:
    from llmfw.core.kernels.kv_kernel import write

    def write_by_kernel(
        storage: KVStorage, index: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (key, value))
        write(key, value, storage.keys[index], storage.values[index], slots, storage.scales(index))

    return write_by_kernel


def _check(writer: Writer, layer: LayerSpec, storage: KVStorage) -> None:
    """Raise RuntimeError if a writer and `KVStorage.write` store different numbers for a few tokens."""
    device, scales = storage.keys[0].device, storage.scales(layer.index)
    num_heads, head_dim, v_head_dim = _shape(layer)
    written = []
    # As in a model, keys and values are slices of one product.
    row = torch.linspace(
        -LARGEST_IN_TRIAL, LARGEST_IN_TRIAL, num_heads * (head_dim + v_head_dim), device=device
    )
    product = torch.stack([row, row.flip(0), row / LARGEST_IN_TRIAL]).to(storage.dtype)
    key, value = product.split([num_heads * head_dim, num_heads * v_head_dim], dim=-1)
    key, value = (part.unflatten(-1, (num_heads, -1)) for part in (key, value))
    slots = torch.tensor(TRIAL_SLOTS, device=device)
    for write in (writer, KVStorage.write):
        trial = KVStorage(
            [replace(layer, index=0)], 4, 1, storage.dtype, device, storage.stored_as, {0: scales}
        )
        write(trial, 0, slots, key, value)
        written.append(trial)
    ours, theirs = written
    for found, expected in zip(ours.keys + ours.values, theirs.keys + theirs.values, strict=True):
        if not torch.equal(as_bytes(found), as_bytes(expected)):
            raise RuntimeError("it stores other numbers")


def _shape(layer: LayerSpec) -> tuple[int, int, int]:
    return layer.num_kv_heads, layer.head_dim, layer.v_head_dim
