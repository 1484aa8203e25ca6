"""A stack of packed layers.

Runs a step in one native call. If another backend computes the attention, there is a native call before and
after the attention of each layer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from llmfw.core.model.attention.hf_attention import AttentionStep, Step

from .attention import CpuAttention
from .library import load_library
from .quantized_weights import pack_linears
from .recognition import FEEDING, LayerParts, Norm, bias_of
from .structs import AttentionStruct, EndsStruct, LayerStruct, StackStruct, StepStruct
from .weights import Arena, NativeLinear, Packed, round_up

PADDING = 32
CACHE_SETS = 1024
"""Stride in bytes at which rows compete for the same L1 cache sets.

`_stride` widens rows whose stride is a multiple of this.
"""


class PackedLayer:
    """Copies of one layer's weights in the native code's layout, which `take_place` puts into the layer.

    Args:
        parts: modules and sizes of the layer.
        arena: memory for the copies.
    """

    def __init__(self, parts: LayerParts, arena: Arena) -> None:
        self.parts = parts
        self._packed = {"q_proj": _pack(parts, ("q_proj", "k_proj", "v_proj"), arena)}
        for name in ("o_proj", *FEEDING):
            self._packed[name] = _pack(parts, (name,), arena)

    @property
    def qkv(self) -> Packed:
        """Packed weights of the query, key and value projections."""
        return self._packed["q_proj"]

    @property
    def width(self) -> int:
        """Size of the hidden state."""
        return self.qkv.in_features

    @property
    def active_width(self) -> int:
        """Intermediate size of the feed-forward block, rounded up to whole panels."""
        return self._packed["gate_proj"].widths[0]

    def take_place(self) -> int:
        """Replace the linear layers with packed ones, which frees their weights; return their number."""
        num_replaced = len(self.parts.linears)
        for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
            setattr(self.parts.attention, name, NativeLinear(self.qkv, i))
        self.parts.attention.o_proj = NativeLinear(self._packed["o_proj"])
        for name in FEEDING:
            setattr(self.parts.feeding, name, NativeLinear(self._packed[name]))
        self.parts.linears.clear()  # its references would keep the weights alive
        return num_replaced

    def struct(self) -> LayerStruct:
        """Return the layer's struct for the native code; valid as long as this object lives."""
        parts = self.parts
        query_norm, key_norm = parts.head_norms or (None, None)
        return LayerStruct(
            *(self._packed[name].matrix() for name in ("q_proj", "o_proj", *FEEDING)),
            *(_address(norm) for norm in (parts.input_norm, parts.after_norm, query_norm, key_norm)),
            *(_epsilon(norm) for norm in (parts.input_norm, parts.after_norm, query_norm, key_norm)),
        )


class Stack:
    """A stack of packed layers of equal shape, followed by a norm.

    Args:
        layers: the layers in order; at least one.
        norm: norm after the last layer.
    """

    def __init__(self, layers: Sequence[PackedLayer], norm: Norm) -> None:
        self._layers = layers
        self._norm = norm  # keeps it alive: the structs have its address
        first = layers[0]
        head_dim = first.parts.head_dim
        self._shapes = [size // head_dim for size in first.qkv.sizes]
        self._head_dim = head_dim
        self.dtype = first.qkv.dtype
        self._structs = (LayerStruct * len(layers))(*(layer.struct() for layer in layers))
        self._struct = StackStruct(
            *(len(layers), first.width, *self._shapes[:2], head_dim),
            *(first.qkv.first_column(1), first.qkv.first_column(2)),
            self._structs,
            *(_address(norm), norm.epsilon),
        )
        widths = {
            "residual": round_up(first.width, PADDING),
            "normed": first.width,
            "qkv": sum(first.qkv.widths),
            "active": first.active_width,
            "result": first.width,
        }
        self._widths = {name: self._stride(width) for name, width in widths.items()}
        self._widths["attended"] = self._shapes[0] * head_dim
        self._buffers: dict[str, torch.Tensor] = {}
        self._capacity = 0
        self._step = StepStruct()
        self._attention: tuple[CpuAttention, ctypes.Array[AttentionStruct]] | None = None
        self._library = load_library(self.dtype)

    def run(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
        step: Step,
    ) -> torch.Tensor:
        """Run tokens through the layers and the final norm; return the result, [T, width].

        Args:
            embeddings: hidden states before the first layer: [T, width]; not modified.
            positions: each token's row in the tables: [T].
            tables: cosines and sines: [rows, head_dim], contiguous.
            step: step whose `attend` computes the attention, if native code does not. The tensors that
                `attend` gets are overwritten by the next layer.
        """
        rows = len(embeddings)
        result = torch.empty_like(embeddings, memory_format=torch.contiguous_format)
        if rows == 0:
            return result
        self._prepare(positions, tables)
        self._step.result, self._step.result_stride = result.data_ptr(), result.stride(0)
        self._buffers["residual"][:rows, : embeddings.shape[1]] = embeddings
        attentions = self.native_attention(step)
        if attentions is None:
            self._run_between(step, rows)
        else:
            self._library.llmfw_run_stack(ctypes.byref(self._struct), ctypes.byref(self._step), attentions)
        return result

    def run_whole(
        self,
        ends: EndsStruct,
        positions: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
        attentions: ctypes.Array[AttentionStruct],
        wanted: torch.Tensor | None,
    ) -> int:
        """Compute logits from token ids in one native call; return the call's status (see `ends`).

        Args:
            ends: embeddings and head, with the step's token ids (one per position, at least one) and a buffer
                for the logits.
            positions, tables: as in `run`.
            attentions: result of `native_attention`.
            wanted: rows to compute logits for, int64, contiguous; None: all rows.
        """
        struct = self._step
        if wanted is not None:  # a row may be wanted more than once
            self._reserve(wanted.numel())
        self._prepare(positions, tables)
        self._point_at("result")
        if wanted is not None:
            struct.wanted, struct.num_results = wanted.data_ptr(), wanted.numel()
        status: int = self._library.llmfw_run_model(
            ctypes.byref(self._struct), ctypes.byref(struct), attentions, ctypes.byref(ends)
        )
        return status

    def _prepare(self, positions: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Point the step struct at this step's inputs, with buffers for its rows.

        Every row produces a result.
        """
        rows = positions.numel()
        self._reserve(rows)
        struct = self._step
        struct.rows = struct.num_results = rows
        struct.positions, struct.wanted = positions.data_ptr(), None
        struct.cosines, struct.sines = tables[0].data_ptr(), tables[1].data_ptr()

    def _run_between(self, step: Step, rows: int) -> None:
        """Run the layers, calling the step's `attend` between native calls."""
        stack, struct = ctypes.byref(self._struct), self._step
        query, key, value = self._heads(rows)
        self._library.llmfw_begin(stack, ctypes.byref(struct))
        try:
            for i, layer in enumerate(self._layers):
                attended = step.attend(layer.parts.attention, query, key, value, None, **layer.parts.keywords)
                attended = attended.reshape(rows, -1)
                if not attended.is_contiguous():
                    attended = attended.contiguous()
                struct.attended, struct.attended_stride = attended.data_ptr(), attended.stride(0)
                self._library.llmfw_continue(stack, ctypes.byref(struct), i)
        finally:
            self._point_at("attended")

    def native_attention(self, step: Step) -> ctypes.Array[AttentionStruct] | None:
        """Return each layer's attention struct; None if this library does not compute the attention."""
        if not isinstance(step, AttentionStep) or not isinstance(step.backend, CpuAttention):
            return None
        if step.backend.library is not self._library:
            return None
        if self._attention is None or self._attention[0] is not step.backend:
            found = (AttentionStruct * len(self._layers))()
            for i, layer in enumerate(self._layers):
                index = layer.parts.attention.layer_idx
                assert isinstance(index, int)
                call = step.backend.call(step.layers[index])
                found[i] = AttentionStruct(
                    call.plan, ctypes.addressof(call.shape), ctypes.addressof(call.tensors)
                )
            self._attention = (step.backend, found)
        return self._attention[1]

    def _heads(self, rows: int) -> list[torch.Tensor]:
        """Return the queries, keys and values as views of their buffer, each [1, heads, T, head_dim]."""
        qkv = self._buffers["qkv"][:rows]
        found = []
        for i, count in enumerate(self._shapes):
            first = self._layers[0].qkv.first_column(i)
            heads = qkv[:, first : first + count * self._head_dim].unflatten(1, (count, self._head_dim))
            found.append(heads.transpose(0, 1)[None])
        return found

    def _reserve(self, rows: int) -> None:
        """Ensure that the buffers have room for `rows` rows. Padding beyond a row's width is zero."""
        if rows <= self._capacity:
            return
        self._capacity = 1 << (rows - 1).bit_length()
        self._buffers = {
            name: torch.zeros(self._capacity, width, dtype=self.dtype, device="cpu")
            for name, width in self._widths.items()
        }
        for name in self._buffers:
            self._point_at(name)

    def _point_at(self, name: str) -> None:
        """Set the address and stride of the named buffer in the step struct."""
        buffer = self._buffers[name]
        setattr(self._step, name, buffer.data_ptr())
        setattr(self._step, f"{name}_stride", buffer.stride(0))

    def _stride(self, width: int) -> int:
        stride = round_up(width, PADDING)
        return stride + PADDING if stride * self.dtype.itemsize % CACHE_SETS == 0 else stride


def _pack(parts: LayerParts, names: Sequence[str], arena: Arena) -> Packed:
    linears = [parts.linears[name] for name in names]
    biases = [bias_of(linear) for linear in linears]
    if all(bias is None for bias in biases):
        return pack_linears(linears, None, arena)
    dtype = parts.input_norm.weight.dtype
    return pack_linears(
        linears,
        [
            torch.zeros(parts.out_features(name), dtype=dtype, device="cpu") if bias is None else bias
            for name, bias in zip(names, biases, strict=True)
        ],
        arena,
    )


def _address(norm: Norm | None) -> int | None:
    return None if norm is None else norm.weight.data_ptr()


def _epsilon(norm: Norm | None) -> float:
    return 0.0 if norm is None else norm.epsilon
