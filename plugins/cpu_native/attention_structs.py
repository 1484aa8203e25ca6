"""ctypes structs of csrc/attention.h, and the libraries with the functions that take them."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p

import torch

from llmfw.core import LayerSpec

from .build import BuildError
from .libraries import Scalar
from .library import load_attention

DTYPES = {
    torch.float32: Scalar.FLOAT32,
    torch.bfloat16: Scalar.BFLOAT16,
    torch.float16: Scalar.FLOAT16,
}


class Shape(Structure):
    """Parameters of a layer's attention.

    These are dtype, head counts and sizes, window, scale and soft cap, and whether bfloat16 numbers are
    multiplied in pairs.
    """

    _fields_ = (
        ("dtype", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("v_head_dim", c_int32),
        ("window", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("in_pairs", c_int32),
    )

    @classmethod
    def of(cls, layer: LayerSpec, dtype: torch.dtype, *, in_pairs: bool) -> Shape:
        """Return the shape of a layer.

        Args:
            in_pairs: whether to multiply bfloat16 numbers in pairs, instead of converting them to float32.
        """
        heads = (layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.v_head_dim)
        window = min(layer.sliding_window or 0, 2**31 - 1)
        return cls(DTYPES[dtype], *heads, window, layer.scale, layer.softcap or 0.0, in_pairs)


class Step(Structure):
    """The sequences of a step, and the page table."""

    _fields_ = (
        ("slots", c_void_p),
        ("query_lens", c_void_p),
        ("kv_lens", c_void_p),
        ("rows", c_void_p),
        ("page_table", c_void_p),
        ("table_stride", c_int64),
        ("num_sequences", c_int64),
        ("num_tokens", c_int64),
        ("page_size", c_int64),
    )


class Tensors(Structure):
    """The addresses and strides of the tensors that one layer's attention reads and writes."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("output", c_void_p),
        ("sinks", c_void_p),
        ("query_token_stride", c_int64),
        ("query_head_stride", c_int64),
        ("key_token_stride", c_int64),
        ("key_head_stride", c_int64),
        ("value_token_stride", c_int64),
        ("value_head_stride", c_int64),
    )


def attention_library(dtype: torch.dtype, *, in_pairs: bool = False) -> ctypes.CDLL:
    """Return the library for a dtype, with the signatures of attention's functions.

    Args:
        dtype: dtype of keys and values.
        in_pairs: whether to include kernels for pairs of bfloat16 if this CPU supports pairs; False: only if
            these kernels are faster.

    Raises:
        BuildError: the library cannot be built.
    """
    return with_signatures(load_attention(DTYPES[dtype], in_pairs=in_pairs))


@functools.cache
def why_no_attention(dtype: torch.dtype) -> str | None:
    """Return why native attention in a dtype is unavailable on this machine, as a sentence, or None."""
    try:
        attention_library(dtype)
    except BuildError as error:
        return str(error)
    return None


def with_signatures(library: ctypes.CDLL) -> ctypes.CDLL:
    """Set the signatures of attention's functions in a library; return the library."""
    library.llmfw_attention_plan_new.argtypes = ()
    library.llmfw_attention_plan_new.restype = c_void_p
    library.llmfw_attention_plan_free.argtypes = (c_void_p,)
    library.llmfw_attention_plan_free.restype = None
    library.llmfw_attention_plan.argtypes = (c_void_p, POINTER(Step), POINTER(Shape))
    library.llmfw_attention_plan.restype = None
    library.llmfw_attention.argtypes = (c_void_p, POINTER(Shape), POINTER(Tensors))
    library.llmfw_attention.restype = None
    library.llmfw_attention_pairs.argtypes = ()
    library.llmfw_attention_pairs.restype = c_int32
    library.llmfw_attention_num_pieces.argtypes = (c_void_p,)
    library.llmfw_attention_num_pieces.restype = c_int64
    library.llmfw_attention_num_keys.argtypes = (c_void_p, POINTER(Shape))
    library.llmfw_attention_num_keys.restype = c_int64
    return library
