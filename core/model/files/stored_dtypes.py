"""The names of dtypes of stored tensors, in torch and in safetensors."""

from __future__ import annotations

import torch

BY_TORCH_NAME = {
    str(each).removeprefix("torch."): each for each in vars(torch).values() if type(each) is torch.dtype
}
"""Name in torch → dtype."""

SAFETENSORS_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""Name in safetensors → name in torch."""

_TO_SAFETENSORS = {name: short for short, name in SAFETENSORS_NAMES.items()}


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype that has this name in torch or safetensors; None if there is none."""
    return BY_TORCH_NAME.get(SAFETENSORS_NAMES.get(name, name))


def safetensors_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in safetensors, or the name in torch if safetensors lacks the dtype."""
    name = str(dtype).removeprefix("torch.")
    return _TO_SAFETENSORS.get(name, name)
