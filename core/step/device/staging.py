"""Sends a step's arrays from the host to the device without waiting for the device.

A copy from pageable memory makes the host wait until the device has reached the copy, and each copy costs a
launch. So the arrays of a step are packed into one pinned buffer and sent together. A buffer is reused once
the device has read it; if no buffer is free, another one is allocated.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

ALIGNMENT = 16
"""Alignment of each array in a buffer, in bytes, as vectorized loads require."""


class _Buffer:
    """A host buffer, and an event that shows when the device has read it.

    Args:
        num_bytes: size in bytes.
        is_pinned: whether to allocate pinned memory, for a GPU.
    """

    __slots__ = ("event", "host", "tensor")

    def __init__(self, num_bytes: int, *, is_pinned: bool) -> None:
        self.tensor = torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
        self.host: npt.NDArray[np.uint8] = self.tensor.numpy()
        self.event = torch.cuda.Event() if is_pinned else None

    @property
    def is_read(self) -> bool:
        """Whether the device has read the data last written."""
        return self.event is None or self.event.query()


class Staging:
    """Sends arrays to a device.

    Args:
        device: target device.
        packs: whether to send all arrays by one copy. If False, the tensors share the arrays' memory. None
            means False on a CPU, and True on other devices. Tests use True on a CPU.

    Attributes:
        is_shared: whether host and device share memory, so that sending does not copy.
    """

    def __init__(self, device: torch.device, *, packs: bool | None = None) -> None:
        self._device = device
        self.is_shared = device.type == "cpu" if packs is None else not packs
        self._buffers: deque[_Buffer] = deque()  # least recently used first

    def send(self, *arrays: npt.NDArray[Any], counts_writes: bool = False) -> list[torch.Tensor]:
        """Return the arrays as tensors on the device, with the same shapes and types.

        Work that is launched on the current stream afterwards can read the tensors. The caller may change the
        arrays at once unless `is_shared`, because the tensors then share the arrays' memory.

        Args:
            arrays: arrays of the host.
            counts_writes: whether the tensors share one `_version`, which counts writes to any of them.
                Tensors created in inference mode count no writes. Has no effect if `is_shared`. Takes a few
                microseconds.
        """
        if self.is_shared:
            return [torch.from_numpy(array) for array in arrays]
        sizes = [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays]
        total = sum(sizes)
        buffer = self._take(total)
        first = 0
        for array, size in zip(arrays, sizes, strict=True):
            flat = np.ascontiguousarray(array).reshape(-1)
            buffer.host[first : first + array.nbytes] = flat.view(np.uint8)
            first += size
        with torch.inference_mode(torch.is_inference_mode_enabled() and not counts_writes):
            whole = torch.empty(total, dtype=torch.uint8, device=self._device)
            tensors = [
                _as_tensor(piece, array) for piece, array in zip(whole.split(sizes), arrays, strict=True)
            ]
        whole.copy_(buffer.tensor[:total], non_blocking=True)
        if buffer.event is not None:
            buffer.event.record()
        self._buffers.append(buffer)
        return tensors

    def _take(self, num_bytes: int) -> _Buffer:
        is_pinned = self._device.type == "cuda"
        if self._buffers and self._buffers[0].is_read:
            buffer = self._buffers.popleft()
            if len(buffer.host) >= num_bytes:
                return buffer
        return _Buffer(max(4096, 1 << (num_bytes - 1).bit_length()), is_pinned=is_pinned)


def _as_tensor(piece: torch.Tensor, array: npt.NDArray[Any]) -> torch.Tensor:
    dtype = _TORCH_DTYPES[array.dtype]
    return piece[: array.nbytes].view(dtype).view(array.shape)


_TORCH_DTYPES = {
    np.dtype(name): getattr(torch, name) for name in ("int64", "int32", "float64", "float32", "bool")
}
