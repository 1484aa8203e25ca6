"""ctypes structs of csrc/stack.h, csrc/ends.h and csrc/whole.cpp, which are passed to the native code."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int64, c_void_p

from .weights import Matrix


class LayerStruct(ctypes.Structure):
    """`LlmfwLayer` in csrc/stack.h: the weights of one layer."""

    _fields_ = (
        *((name, Matrix) for name in ("qkv", "output", "gate", "up", "down")),
        *((name, c_void_p) for name in ("input_norm", "after_norm", "query_norm", "key_norm")),
        *((name, c_float) for name in ("input_epsilon", "after_epsilon", "query_epsilon", "key_epsilon")),
    )


class StackStruct(ctypes.Structure):
    """`LlmfwStack` in csrc/stack.h: the layers and their sizes."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in (
                "num_layers",
                "hidden",
                "heads",
                "kv_heads",
                "head_dim",
                "key_column",
                "value_column",
            )
        ),
        ("layers", ctypes.POINTER(LayerStruct)),
        ("final_norm", c_void_p),
        ("final_epsilon", c_float),
    )


BUFFERS = ("residual", "normed", "qkv", "attended", "active", "result")


class StepStruct(ctypes.Structure):
    """`LlmfwStep` in csrc/stack.h: the inputs and buffers of one step."""

    _fields_ = (
        ("rows", c_int64),
        *((name, c_void_p) for name in ("positions", "cosines", "sines", *BUFFERS)),
        *((f"{name}_stride", c_int64) for name in BUFFERS),
        ("wanted", c_void_p),
        ("num_results", c_int64),
    )


class EndsStruct(ctypes.Structure):
    """`LlmfwEnds` in csrc/ends.h: the embeddings, the head, and the addresses of token ids and logits."""

    _fields_ = (
        ("embeddings", Matrix),
        ("plain_embeddings", c_void_p),
        ("head", Matrix),
        ("num_ids", c_int64),
        ("ids", c_void_p),
        ("logits", c_void_p),
    )


class AttentionStruct(ctypes.Structure):
    """`LlmfwAttention` in csrc/whole.cpp: the attention of one layer."""

    _fields_ = tuple((name, c_void_p) for name in ("plan", "shape", "tensors"))
