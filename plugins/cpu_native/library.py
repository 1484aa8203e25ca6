"""The library of native code: loaded once a process, with the signatures of its functions.

Calls release the interpreter's lock. Arguments are numbers and addresses (`Tensor.data_ptr()`); nothing is checked on
the other side. Knows nothing of modules or models.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import torch

from .build import NATIVE, BuildError, build_library

DTYPES = {torch.float32: 0, torch.bfloat16: 1}
"""What the native code computes in, and how it calls it."""

SIGNATURES: dict[str, Sequence[type[ctypes._SimpleCData[Any]]]] = {
    "llmfw_set_threads": (c_int32,),
    "llmfw_rms_norm": (c_int32, c_void_p, c_void_p, c_float, c_int64, c_int64, c_void_p),
    "llmfw_pack": (c_int32, c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "llmfw_unpack": (c_int32, c_void_p, c_int64, c_int64, c_void_p),
    "llmfw_product": (c_int32, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64),
    "llmfw_gather": (c_int32, c_void_p, c_void_p, c_int64, c_void_p),
    "llmfw_pack_codes": (c_int64, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "llmfw_unpack_codes": (c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p),
    "llmfw_sizes": (c_void_p,),
    "llmfw_begin": (c_void_p, c_void_p),
    "llmfw_continue": (c_void_p, c_void_p, c_int64),
    "llmfw_run_stack": (c_void_p, c_void_p, c_void_p),
}
"""Of what returns nothing, by the files of csrc/."""


@functools.cache
def load_library(flags: Sequence[str] = NATIVE) -> ctypes.CDLL:
    """Return the library, built if need be, with as many threads as torch has.

    Raises:
        BuildError: see `build_library`; or the library cannot be loaded.
    """
    library = open_library(build_library(flags))
    library.llmfw_set_threads(torch.get_num_threads())
    return library


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library and give its functions their signatures."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the native code cannot be loaded: {error}") from error
    for name, arguments in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = None
    library.llmfw_num_threads.restype = c_int32
    library.llmfw_run_model.argtypes, library.llmfw_run_model.restype = (c_void_p,) * 4, c_int32
    library.llmfw_largest.argtypes, library.llmfw_largest.restype = (c_void_p, c_int64), c_uint64
    return library


def largest(numbers: torch.Tensor) -> int:
    """Return the largest of some numbers, 0 if there are none; a negative one counts as larger than all others.

    Args:
        numbers: int64, contiguous.
    """
    return int(load_library().llmfw_largest(numbers.data_ptr(), numbers.numel()))


@functools.cache
def why_not() -> str | None:
    """Return why there is no library on this machine, as a sentence, or None if there is one."""
    try:
        load_library()
    except BuildError as error:
        return str(error)
    return None
