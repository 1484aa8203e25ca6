"""Weights in the native code's layout, and the module that stands where a linear layer stood.

A weight is held once: who asks for it by its name gets a copy in the usual layout. Knows nothing of models.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from ctypes import c_int64, c_void_p

import numpy as np
import torch
from torch import nn

from .library import largest, load_library

PANEL = 32
"""Output features that stand together; PANEL in csrc/products.h."""
ALIGNMENT = 64
PIECE = 1 << 26
"""Bytes asked of the system at once. Numpy asks for large pages from 4 MB on, so what reads all of it does so faster; and
only the edges of a piece have small ones. What is not written to takes no memory."""


class Matrix(ctypes.Structure):
    """`Matrix` of csrc/products.h."""

    _fields_ = (
        *(("panels", c_void_p), ("bias", c_void_p), ("out", c_int64), ("in_", c_int64)),
        ("kind", c_int64),
    )


class Arena:
    """Memory for packed weights, in large pieces.

    Args:
        size: bytes of a piece; what is larger has one of its own.
    """

    def __init__(self, size: int = PIECE) -> None:
        self._size = size
        self._piece = torch.empty(0, dtype=torch.uint8)

    def take(self, num_bytes: int) -> torch.Tensor:
        """Return so many bytes that nobody else has, aligned, of any content."""
        num_bytes = round_up(num_bytes, ALIGNMENT)
        if num_bytes > len(self._piece):
            array = np.empty(max(num_bytes, self._size) + ALIGNMENT, dtype=np.uint8)
            piece = torch.from_numpy(array)
            self._piece = piece[-piece.data_ptr() % ALIGNMENT :]
        taken, self._piece = self._piece[:num_bytes], self._piece[num_bytes:]
        return taken


class Packed(ABC):
    """What linear layers with one input have, packed beside each other: each begins a new panel.

    Args:
        dtype: of their inputs and outputs.
        shapes: of their weights, each (out_features, in_features).
        biases: of each, or None for all; they are copied.
        arena: where the panels go.
        row_bytes: that an output feature takes in them.
        kind: a `Kind` of csrc/products.h: what the panels hold.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        shapes: Sequence[tuple[int, int]],
        biases: Sequence[torch.Tensor] | None,
        arena: Arena,
        row_bytes: int,
        kind: int,
    ) -> None:
        self.dtype = dtype
        self.in_features = shapes[0][1]
        self.sizes = [size for size, _ in shapes]
        self.widths = [round_up(size, PANEL) for size in self.sizes]
        self.biases = None if biases is None else [bias.detach().clone() for bias in biases]
        self._kind = kind
        self._row_bytes = row_bytes
        self._panels = arena.take(sum(self.widths) * row_bytes)
        self._summands = torch.zeros(sum(self.widths), dtype=torch.float32)
        for i, bias in enumerate(self.biases or ()):
            self._summands[self.first_column(i) :][: self.sizes[i]] = bias

    @abstractmethod
    def weight(self, index: int) -> torch.Tensor:
        """Return a copy of one layer's weight, [out_features, in_features]."""

    def first_column(self, index: int) -> int:
        """Return where the outputs of one of the layers begin in those of all."""
        return sum(self.widths[:index])

    def matrix(self, index: int | None = None) -> Matrix:
        """Return one layer's, or all layers', for the native code. Valid as long as this object lives."""
        first = self.first_column(index or 0)
        summands = self._summands[first:].data_ptr() if self.biases is not None else None
        out = sum(self.widths) if index is None else self.widths[index]
        return Matrix(self._address(index or 0), summands, out, self.in_features, self._kind)

    def _address(self, index: int) -> int:
        return self._panels.data_ptr() + self.first_column(index) * self._row_bytes


class PackedWeights(Packed):
    """Weights as they are.

    Args:
        weights: each [out_features, in_features], of one dtype; they are copied.
        biases: of each, or None for all.
        arena: where they go.
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor] | None, arena: Arena
    ) -> None:
        dtype = weights[0].dtype
        unit = 1 if dtype == torch.float32 else 2
        row_bytes = round_up(weights[0].shape[1], unit) * dtype.itemsize
        shapes = [(len(weight), weight.shape[1]) for weight in weights]
        super().__init__(dtype, shapes, biases, arena, row_bytes, kind=0)
        for i, weight in enumerate(weights):
            rows = weight.detach()
            rows = rows if rows.stride(1) == 1 else rows.contiguous()
            load_library(dtype).llmfw_pack(rows.data_ptr(), rows.stride(0), *rows.shape, self._address(i))

    def weight(self, index: int) -> torch.Tensor:
        """Return a copy of one layer's weight, [out_features, in_features]."""
        weight = torch.empty(self.sizes[index], self.in_features, dtype=self.dtype)
        load_library(self.dtype).llmfw_unpack(self._address(index), *weight.shape, weight.data_ptr())
        return weight


class NativeLinear(nn.Module):
    """A linear layer whose weight only the native code reads.

    Args:
        packed: weights, of several layers perhaps.
        index: which of them is this one.
    """

    def __init__(self, packed: Packed, index: int = 0) -> None:
        super().__init__()
        self.packed = packed
        self.index = index
        self.in_features = packed.in_features
        self.out_features = packed.sizes[index]
        self._matrix = packed.matrix(index)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as it was, [out_features, in_features]. A copy: what reads it in every step is slow."""
        return self.packed.weight(self.index)

    @property
    def bias(self) -> torch.Tensor | None:
        """What is added to the product, [out_features]."""
        return None if self.packed.biases is None else self.packed.biases[self.index]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return [..., out_features] for [..., in_features]."""
        if hidden.dtype != self.packed.dtype:
            raise TypeError(f"a product with weights of {self.packed.dtype} is given {hidden.dtype}")
        rows = hidden.reshape(-1, self.in_features)
        if self.in_features % 2:  # the native code reads pairs
            rows = nn.functional.pad(rows, (0, 1))
        if rows.stride(1) != 1:
            rows = rows.contiguous()
        output = rows.new_empty(len(rows), self.packed.widths[self.index])
        load_library(self.packed.dtype).llmfw_product(
            ctypes.byref(self._matrix),
            *(rows.data_ptr(), rows.stride(0), len(rows)),
            *(output.data_ptr(), output.stride(0)),
        )
        return output[:, : self.out_features].view(*hidden.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Return what is shown of it beside its class."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class NativeEmbedding(nn.Module):
    """Embeddings that are the weights of a head, too.

    Args:
        packed: the head's weights, alone.
    """

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self.packed = packed
        self.num_embeddings, self.embedding_dim = packed.sizes[0], packed.in_features
        self._matrix = packed.matrix()

    @property
    def weight(self) -> torch.Tensor:
        """The weight as it was, [num_embeddings, embedding_dim]. A copy: what reads it in every step is slow."""
        return self.packed.weight(0)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return [..., embedding_dim] for token ids [...].

        Raises:
            IndexError: there is no such token.
        """
        ids = ids.contiguous()
        output = torch.empty(*ids.shape, self.embedding_dim, dtype=self.packed.dtype)
        if ids.numel() == 0:
            return output
        library = load_library(self.packed.dtype)
        if ids.dtype != torch.int64 or largest(library, ids) >= self.num_embeddings:
            raise IndexError(f"token ids have to be of int64 and below {self.num_embeddings}")
        library.llmfw_gather(
            ctypes.byref(self._matrix),
            *(ids.data_ptr(), ids.numel(), output.data_ptr()),
        )
        return output

    def extra_repr(self) -> str:
        """Return what is shown of it beside its class."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


def round_up(number: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-number // multiple) * multiple
