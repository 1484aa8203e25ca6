"""The attention backend `cpu`: C++ code (csrc/attention*) that reads keys and values in place.

The C++ code plans a step once per kind of layer, and computes each layer in one call. This module validates
all arguments, because the C++ code trusts the addresses that it gets.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from llmfw.core import AttentionBackend, ComponentError, ForwardBatch, KVStorage, LayerSpec

from .attention_structs import DTYPES, Shape, Step, Tensors, attention_library, why_no_attention
from .build import BuildError
from .cpu import has_bfloat16_pairs

FAST_PAIRS = 2
"""Result of `llmfw_attention_pairs` if multiplying bfloat16 in pairs is faster on this CPU."""


@dataclass(frozen=True, slots=True)
class LayerCall:
    """The arguments of a native call that computes a layer's attention; see csrc/attention.h.

    Attributes:
        plan: address of the AttentionPlan, which contains the plan of the latest step.
        shape: shape of the layer.
        tensors: addresses of the layer's KV storage; the caller sets the other fields.
    """

    plan: int
    shape: Shape
    tensors: Tensors


class CpuAttention(AttentionBackend):
    """Attention on CPUs by native code that reads the pages in place.

    Attributes:
        library: shared library with the native code.
    """

    has_own_threads = True

    class Options(AttentionBackend.Options, frozen=True, forbid_unknown_fields=True):
        """Options, `-o attention.key=value`.

        Attributes:
            products: how bfloat16 numbers are multiplied. `pairs`: two at a time, by AVX512_BF16; `float32`:
                converted to float32; `auto`: whichever is faster on this vendor's CPUs.
        """

        products: Literal["auto", "pairs", "float32"] = "auto"

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Options) -> None:
        super().__init__(layers, storage, options)
        try:
            self.library = attention_library(storage.keys[0].dtype, in_pairs=options.products == "pairs")
        except BuildError as error:
            raise ComponentError(str(error)) from error
        if options.products == "pairs" and not has_bfloat16_pairs():
            raise ComponentError(
                "attention.products is pairs, but this CPU has no AVX512_BF16; float32 would be right"
            )
        pairs = self.library.llmfw_attention_pairs()
        self._in_pairs = pairs == FAST_PAIRS if options.products == "auto" else options.products == "pairs"
        self._step = Step()
        self._held: tuple[object, ...] = ()
        self._plans: dict[tuple[int | None, ...], int] = {}
        self._shapes: dict[int, Shape] = {}
        self._calls = {layer.index: self._make_call(layer) for layer in layers}
        weakref.finalize(self, _free, self.library.llmfw_attention_plan_free, list(self._plans.values()))

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return the first reason why the backend cannot serve these layers on this device, or None."""
        if torch.device(device).type != "cpu":
            return f"it runs on CPUs, not on {device}"
        if dtype not in DTYPES:
            return f"it computes in float32, bfloat16 and float16, not in {str(dtype).removeprefix('torch.')}"
        if not layers:
            return "the model has no layers with attention"
        if odd := next((layer.head_dim for layer in layers if layer.head_dim % 2), None):
            return f"heads have an even number of dimensions; here they have {odd}"
        return why_no_attention(dtype)

    def plan(self, batch: ForwardBatch) -> None:
        """Split the step's work into pieces, once per kind of layer."""
        slots, rows, table = batch.slots.contiguous(), batch.rows.contiguous(), batch.page_table
        if (slots.dtype, rows.dtype, table.dtype) != (torch.int64, torch.int64, torch.int32) or table.stride(
            1
        ) != 1:
            raise ValueError(
                f"slots, rows and page table are of {slots.dtype}, {rows.dtype} and {table.dtype}; "
                "right are int64, int64 and int32, with a row's pages side by side"
            )
        step = self._step
        step.slots, step.rows, step.page_table = slots.data_ptr(), rows.data_ptr(), table.data_ptr()
        query_lens, kv_lens = (
            np.ascontiguousarray(x, dtype=np.int64) for x in (batch.query_lens, batch.kv_lens)
        )
        # numpy's own `.ctypes` takes twice as long to return an address.
        step.query_lens, step.kv_lens = (torch.from_numpy(x).data_ptr() for x in (query_lens, kv_lens))
        step.table_stride = table.stride(0)
        step.num_sequences, step.num_tokens = len(query_lens), slots.numel()
        step.page_size = batch.page_size
        self._held = (slots, rows, table, query_lens, kv_lens)
        for plan, shape in self._shapes.items():
            self.library.llmfw_attention_plan(plan, byref(step), byref(shape))

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Store the new keys and values, and return the attention's output, in one native call."""
        count, dtype = self._step.num_tokens, self.storage.keys[layer.index].dtype
        query, query_strides = _checked("query", query, count, layer.num_heads, layer.head_dim, dtype)
        key, key_strides = _checked("key", key, count, layer.num_kv_heads, layer.head_dim, dtype)
        value, value_strides = _checked("value", value, count, layer.num_kv_heads, layer.v_head_dim, dtype)
        output = query.new_empty((count, layer.num_heads, layer.v_head_dim))
        if sinks is not None:
            sinks = sinks.to(dtype).contiguous()
        call = self._calls[layer.index]
        tensors = call.tensors
        tensors.query, tensors.key, tensors.value = query.data_ptr(), key.data_ptr(), value.data_ptr()
        tensors.output = output.data_ptr()
        tensors.sinks = None if sinks is None else sinks.data_ptr()
        tensors.query_token_stride, tensors.query_head_stride = query_strides
        tensors.key_token_stride, tensors.key_head_stride = key_strides
        tensors.value_token_stride, tensors.value_head_stride = value_strides
        self.library.llmfw_attention(call.plan, byref(call.shape), byref(tensors))
        return output

    def call(self, layer: LayerSpec) -> LayerCall:
        """Return the arguments with which other native code calls `llmfw_attention` for a layer.

        The arguments are valid once the step has been planned with `plan`.
        """
        return self._calls[layer.index]

    def _make_call(self, layer: LayerSpec) -> LayerCall:
        keys, values = self.storage.keys[layer.index], self.storage.values[layer.index]
        shape = Shape.of(layer, keys.dtype, in_pairs=self._in_pairs)
        kind = (layer.num_heads, layer.num_kv_heads, layer.v_head_dim, layer.sliding_window)
        if kind not in self._plans:
            plan = self._plans[kind] = self.library.llmfw_attention_plan_new()
            self._shapes[plan] = shape
        return LayerCall(self._plans[kind], shape, Tensors(keys=keys.data_ptr(), values=values.data_ptr()))


def _checked(
    name: str, tensor: torch.Tensor, count: int, heads: int, size: int, dtype: torch.dtype
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return the tensor, contiguous within each head, and its strides over tokens and heads.

    Raises:
        ValueError: the tensor's shape is not [count, heads, size], or its dtype is not `dtype`.
    """
    if tensor.shape != (count, heads, size) or tensor.dtype != dtype:
        raise ValueError(
            f"{name} is {list(tensor.shape)} of {tensor.dtype}; "
            f"the planned step and the layer make it {[count, heads, size]} of {dtype}"
        )
    of_token, of_head, of_number = tensor.stride()
    if of_number == 1:
        return tensor, (of_token, of_head)
    return tensor.contiguous(), (heads * size, size)


def _free(free: object, plans: Sequence[int]) -> None:
    assert callable(free)
    for plan in plans:
        free(plan)
