"""The dtypes in which keys and values can be stored, and conversion to and from them.

In a dtype narrower than the model's, an element x is stored as `x / scale`, rounded to nearest. Elements too
large for the dtype saturate: they are stored as its largest finite value. Each layer has one scale for all
keys, and one for all values. A reader multiplies by the scale: for keys as part of the softmax scale, for
values in the output.
"""

from __future__ import annotations

from functools import cache

import torch

from llmfw.core.base.errors import ConfigError

from .kv_dtype_names import KV_DTYPE_BYTES

KV_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
"""Names for `--kv-cache-dtype`."""

assert KV_DTYPES.keys() == KV_DTYPE_BYTES.keys()


def check_kv_dtype(asked: str) -> None:
    """Raise ConfigError if the value of `--kv-cache-dtype` is unknown; the message lists the known values."""
    if asked != "auto" and asked not in KV_DTYPES:
        raise ConfigError(f"--kv-cache-dtype is {asked!r}; it must be auto or one of {', '.join(KV_DTYPES)}")


def choose_kv_dtype(asked: str, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to store keys and values in.

    Args:
        asked: name of a dtype; "auto": the model's dtype.
        dtype: dtype of the model.

    Raises:
        ConfigError: the name is unknown.
    """
    check_kv_dtype(asked)
    return dtype if asked == "auto" else KV_DTYPES[asked]


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name, as in `--kv-cache-dtype`."""
    names = {known: name for name, known in KV_DTYPES.items()}
    return names.get(dtype) or str(dtype).removeprefix("torch.")


def is_fp8(dtype: torch.dtype) -> bool:
    """Return whether a dtype has 8 bits."""
    return dtype.itemsize == 1


def encode(numbers: torch.Tensor, stored_as: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Convert elements to the dtype in which they are stored. The shape stays the same."""
    if scale != 1.0:
        numbers = numbers.float() * (1.0 / scale)
    elif not is_fp8(stored_as):
        numbers = numbers.float()  # because bfloat16 cannot represent float16's largest value
    largest = torch.finfo(stored_as).max
    if torch.finfo(numbers.dtype).max > largest:
        numbers = numbers.clamp(-largest, largest)
    return numbers.to(stored_as)


def decode(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert stored elements to `dtype`, without applying the scale. The shape stays the same.

    On a CPU, fp8 is converted by a lookup table: torch's own conversion takes eight times as long.
    """
    if is_fp8(codes.dtype) and codes.device.type == "cpu":
        return (
            _fp8_values(codes.dtype, dtype).index_select(0, as_bytes(codes).flatten().int()).view(codes.shape)
        )
    return codes.to(dtype)


@cache
def _fp8_values(stored_as: torch.dtype, dtype: torch.dtype) -> torch.Tensor:
    """Return the value of each 8-bit code of an fp8 dtype: [256]."""
    return torch.arange(256, dtype=torch.uint8, device="cpu").view(stored_as).to(dtype)


def as_bytes(codes: torch.Tensor) -> torch.Tensor:
    """Return fp8 elements as a view of their bytes; return elements of other dtypes unchanged.

    torch cannot index fp8 tensors on every device.
    """
    return codes.view(torch.uint8) if is_fp8(codes.dtype) else codes
