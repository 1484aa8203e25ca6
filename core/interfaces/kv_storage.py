"""The tensors that hold keys and values, and their size per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .kv_dtype import as_bytes, decode, encode
from .layers import LayerSpec

LARGE_PAGE = 2 << 20
"""Size of a CPU's large memory page in bytes; large pages are aligned to their size."""

LINE = 64
"""Size of a CPU's cache line in bytes. Reading a key that is not aligned to a line takes an additional
line."""


class KVStorage:
    """Keys and values of all pages, layer by layer.

    Attributes:
        keys: keys of each layer: [num_pages, page_size, num_kv_heads, head_dim].
        values: values of each layer: [num_pages, page_size, num_kv_heads, v_head_dim].
        index_keys: index keys of each layer that keeps some (`LayerSpec.index_size`), by the layer's index: [num_pages,
            page_size, index_size].
        dtype: dtype of queries, and of new keys and values.
        stored_as: dtype of `keys`, `values` and `index_keys`; `dtype`, unless `--kv-cache-dtype` names another (see
            `kv_dtype`).

    Args:
        layers: the attention layers.
        num_pages, page_size: number of pages, and tokens per page.
        dtype, device: dtype and device of the model.
        stored_as: dtype of the tensors; None: `dtype`.
        scales: (scale of the keys, scale of the values), by layer; (1, 1) for layers that are missing.
    """

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
        stored_as: torch.dtype | None = None,
        scales: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.dtype = dtype
        self.stored_as = stored_as or dtype
        self._scales = dict(scales or {})
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        for i, spec in enumerate(layers):
            for tensors, size, number in (
                (self.keys, spec.head_dim, 2 * i),
                (self.values, spec.v_head_dim, 2 * i + 1),
            ):
                shape = (num_pages, page_size, spec.num_kv_heads, size)
                tensors.append(_zeros(shape, self.stored_as, device, number / (2 * len(layers))))
        self.index_keys = {
            spec.index: _zeros((num_pages, page_size, spec.index_size), self.stored_as, device, 0)
            for spec in layers
            if spec.index_size
        }

    def scales(self, index: int) -> tuple[float, float]:
        """Return the factors by which readers multiply a layer's stored keys, and its stored values."""
        return self._scales.get(index, (1.0, 1.0))

    def write(self, index: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store new keys [T, Hkv, D] and values [T, Hkv, Dv] of a layer at their slots [T], in `stored_as`.

        Backends whose kernels do not write keys and values themselves can call this, which uses torch's
        operators. Elements too large for a narrower dtype become that dtype's largest finite value.
        """
        for pages, new, scale in zip(
            (self.keys[index], self.values[index]), (key, value), self.scales(index), strict=True
        ):
            if self.stored_as != new.dtype:
                new = encode(new, self.stored_as, scale)
            as_bytes(pages.view(-1, *pages.shape[2:])).index_copy_(0, slots, as_bytes(new))

    def write_index_keys(self, index: int, slots: torch.Tensor, new: torch.Tensor, first: int = 0) -> None:
        """Store columns of new index keys [T, num] of a layer, from column `first`, at their slots [T], in `stored_as`."""
        columns = self.index_keys[index].flatten(0, 1)[:, first : first + new.shape[-1]]
        codes = new if new.dtype == self.stored_as else encode(new, self.stored_as)
        as_bytes(columns).index_copy_(0, slots, as_bytes(codes))

    def read_index_keys(
        self, index: int, slots: torch.Tensor, first: int = 0, num: int | None = None
    ) -> torch.Tensor:
        """Return `num` columns, or all, of a layer's index keys at these slots, in `dtype`: [N, L] → [N, L, num]."""
        pages = self.index_keys[index].flatten(0, 1)
        columns = pages[:, first : None if num is None else first + num]
        codes = as_bytes(columns).index_select(0, slots.flatten()).view(self.stored_as)
        return decode(codes, self.dtype).view(*slots.shape, columns.shape[-1])

    @property
    def num_bytes(self) -> tuple[int, int]:
        """Size of all keys, with the index keys, and of all values, in bytes."""
        keys = (*self.keys, *self.index_keys.values())
        return sum(k.nbytes for k in keys), sum(v.nbytes for v in self.values)


def bytes_per_token(layers: Sequence[LayerSpec], dtype: torch.dtype) -> int:
    """Return the size of one token's keys and values in all layers, in bytes."""
    return sum(spec.num_kv_elements for spec in layers) * dtype.itemsize


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, place: float) -> torch.Tensor:
    """Return a tensor of zeros.

    Uninitialized memory could hold NaN. Attention multiplies masked slots by 0, which does not remove a NaN.

    On a CPU, the memory comes from calloc (through numpy), so that it is provided only when it is first
    written. From 4 MB on, numpy requests large pages, and the system takes some time to provide each. So the
    tensors start at different offsets within a large page, because otherwise a new token could need a new
    large page in every tensor at once.

    Args:
        place: offset of the tensor within a large page, as a fraction of the page.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * dtype.itemsize
    before = int(place * LARGE_PAGE) // LINE * LINE
    memory = torch.from_numpy(np.zeros(LARGE_PAGE + before + size, dtype=np.uint8))
    first = -memory.data_ptr() % LARGE_PAGE + before
    return memory[first : first + size].view(dtype).view(shape)
