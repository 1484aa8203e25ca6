"""Weights in the native code's layout, and the modules that replace linear layers and embeddings.

Each weight is in memory once, in this layout. Reading a module's `weight` returns a copy in the usual layout.
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
"""Output features per panel; `PANEL` in csrc/products.h."""
ALIGNMENT = 64
PIECE = 1 << 26
"""Bytes that the arena allocates at once.

For arrays of 4 MB and more, numpy requests huge pages, which makes reading weights faster. Only the edges of
a piece have small pages. Pages that are never written take no memory.
"""


class Matrix(ctypes.Structure):
    """`Matrix` in csrc/products.h: the packed weights of a linear layer."""

    _fields_ = (
        *(("panels", c_void_p), ("bias", c_void_p), ("out", c_int64), ("in_", c_int64)),
        ("kind", c_int64),
    )


class Arena:
    """Memory for packed weights, allocated in large pieces.

    Args:
        size: bytes per piece; a larger request gets its own piece.
    """

    def __init__(self, size: int = PIECE) -> None:
        self._size = size
        self._piece = torch.empty(0, dtype=torch.uint8, device="cpu")

    def take(self, num_bytes: int) -> torch.Tensor:
        """Return `num_bytes` unused bytes, aligned and uninitialized."""
        num_bytes = round_up(num_bytes, ALIGNMENT)
        if num_bytes > len(self._piece):
            array = np.empty(max(num_bytes, self._size) + ALIGNMENT, dtype=np.uint8)
            piece = torch.from_numpy(array)
            self._piece = piece[-piece.data_ptr() % ALIGNMENT :]
        taken, self._piece = self._piece[:num_bytes], self._piece[num_bytes:]
        return taken


class Packed(ABC):
    """Weights of linear layers that share one input, packed one after another. Each layer starts a new panel.

    Args:
        dtype: dtype of the layers' inputs and outputs.
        shapes: shapes of the weights, each (out_features, in_features).
        biases: bias of each layer, to be copied; None: no layer has one.
        arena: memory for the panels.
        row_bytes: bytes per output feature in a panel.
        kind: format of the panels, a `Kind` in csrc/products.h.
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
        self._summands = torch.zeros(sum(self.widths), dtype=torch.float32, device="cpu")
        for i, bias in enumerate(self.biases or ()):
            self._summands[self.first_column(i) :][: self.sizes[i]] = bias

    @abstractmethod
    def weight(self, index: int) -> torch.Tensor:
        """Return a copy of one layer's weight, [out_features, in_features]."""

    def first_column(self, index: int) -> int:
        """Return the column at which a layer's outputs start among the outputs of all layers."""
        return sum(self.widths[:index])

    def matrix(self, index: int | None = None) -> Matrix:
        """Return the native struct of one layer, or of all; valid as long as this object lives."""
        first = self.first_column(index or 0)
        summands = self._summands[first:].data_ptr() if self.biases is not None else None
        out = sum(self.widths) if index is None else self.widths[index]
        return Matrix(self._address(index or 0), summands, out, self.in_features, self._kind)

    def _address(self, index: int) -> int:
        return self._panels.data_ptr() + self.first_column(index) * self._row_bytes


class PackedWeights(Packed):
    """Packed weights that are not quantized.

    Args:
        weights: weights of one dtype, each [out_features, in_features]; they are copied.
        biases: bias of each layer; None: no layer has one.
        arena: memory for the copies.
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
        weight = torch.empty(self.sizes[index], self.in_features, dtype=self.dtype, device="cpu")
        load_library(self.dtype).llmfw_unpack(self._address(index), *weight.shape, weight.data_ptr())
        return weight


class NativeLinear(nn.Module):
    """A linear layer computed by native code, with packed weights.

    Args:
        packed: packed weights of one or more layers.
        index: index of this layer among them.
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
        """A copy of the weight in the usual layout, [out_features, in_features].

        Each read makes a new copy, which is slow.
        """
        return self.packed.weight(self.index)

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias, [out_features], or None."""
        return None if self.packed.biases is None else self.packed.biases[self.index]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
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
        """Return the attributes that `repr` shows after the class name."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class NativeEmbedding(nn.Module):
    """Embeddings that share the packed weights of a head (tied weights).

    Args:
        packed: weights of the head, and of no other layer.
    """

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self.packed = packed
        self.num_embeddings, self.embedding_dim = packed.sizes[0], packed.in_features
        self._matrix = packed.matrix()

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weight in the usual layout, [num_embeddings, embedding_dim].

        Each read makes a new copy, which is slow.
        """
        return self.packed.weight(0)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of token ids [...]: [..., embedding_dim].

        Raises:
            IndexError: a token id is out of range.
        """
        ids = ids.contiguous()
        output = torch.empty(*ids.shape, self.embedding_dim, dtype=self.packed.dtype, device="cpu")
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
        """Return the attributes that `repr` shows after the class name."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


def round_up(number: int, multiple: int) -> int:
    """Round a number up to a multiple."""
    return -(-number // multiple) * multiple
