"""Loads the libraries of native code, each once per process, and sets the signatures of their functions.

Calls release the GIL. Arguments are numbers and addresses (`Tensor.data_ptr()`); the native code does not
check them. Does not depend on modules or models.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import torch

from .build import BuildError
from .libraries import Scalar, build, build_quantized, machine_flags

DTYPES = {torch.float32: Scalar.FLOAT32, torch.bfloat16: Scalar.BFLOAT16}
"""Dtypes of native layers. For those of attention, see attention_structs.py."""

SIGNATURES: dict[str, Sequence[type[ctypes._SimpleCData[Any]]]] = {
    "llmfw_rms_norm": (c_void_p, c_void_p, c_float, c_int64, c_int64, c_void_p),
    "llmfw_pack": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "llmfw_unpack": (c_void_p, c_int64, c_int64, c_void_p),
    "llmfw_product": (c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64),
    "llmfw_gather": (c_void_p, c_void_p, c_int64, c_void_p),
    "llmfw_use_quantized": (c_void_p,),
    "llmfw_pack_codes": (c_int64, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "llmfw_unpack_codes": (c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "llmfw_sizes": (c_void_p,),
    "llmfw_begin": (c_void_p, c_void_p),
    "llmfw_continue": (c_void_p, c_void_p, c_int64),
    "llmfw_run_stack": (c_void_p, c_void_p, c_void_p),
}
"""Argument types of the functions that return nothing, in the order of the files in csrc/."""


@functools.cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL:
    """Return the library for a dtype, with as many threads as torch has. Build it first if it does not exist.

    Raises:
        BuildError: the library cannot be built or loaded.
    """
    return open_library(build(DTYPES[dtype]))


@functools.cache
def load_quantized(dtype: torch.dtype) -> ctypes.CDLL:
    """Return the library for a dtype, extended by the functions for quantized weights.

    Raises:
        BuildError: as in `load_library`.
    """
    library = load_library(dtype)
    use_quantized(library, build_quantized(DTYPES[dtype]))
    return library


@functools.cache
def load_attention(scalar: Scalar, in_pairs: bool) -> ctypes.CDLL:
    """Return the library that computes attention in a dtype.

    Args:
        scalar: the dtype.
        in_pairs: as in `attention_library`.

    Raises:
        BuildError: as in `load_library`.
    """
    flags = machine_flags(in_pairs=in_pairs and scalar is Scalar.BFLOAT16)
    if flags == machine_flags():
        for dtype, same in DTYPES.items():
            if scalar is same:
                return load_library(dtype)
    return _with_threads(_open(build(scalar, flags)))


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library, set its functions' signatures, and give it as many threads as torch has."""
    library = _open(path)
    for name, arguments in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = None
    library.llmfw_run_model.argtypes, library.llmfw_run_model.restype = (c_void_p,) * 4, c_int32
    library.llmfw_largest.argtypes, library.llmfw_largest.restype = (c_void_p, c_int64), c_uint64
    return _with_threads(library)


def use_quantized(library: ctypes.CDLL, path: Path) -> None:
    """Make a library use the library at `path` for quantized products."""
    other = _open(path)
    other.llmfw_quantized_products.restype = c_void_p
    library.llmfw_use_quantized(other.llmfw_quantized_products())


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the native code cannot be loaded: {error}") from error


def _with_threads(library: ctypes.CDLL) -> ctypes.CDLL:
    library.llmfw_set_threads.argtypes, library.llmfw_set_threads.restype = (c_int32,), None
    library.llmfw_num_threads.restype = c_int32
    library.llmfw_set_threads(torch.get_num_threads())
    return library


def largest(library: ctypes.CDLL, numbers: torch.Tensor) -> int:
    """Return the largest number of a tensor; 0 if it is empty.

    The numbers are read as unsigned, so a negative number counts as larger than all others.

    Args:
        library: any library from `open_library`.
        numbers: int64, contiguous.
    """
    return int(library.llmfw_largest(numbers.data_ptr(), numbers.numel()))


@functools.cache
def why_not(dtype: torch.dtype) -> str | None:
    """Return why a dtype's library cannot be loaded on this machine, as a sentence, or None if it can."""
    try:
        load_library(dtype)
    except BuildError as error:
        return str(error)
    return None
