"""The shared libraries of native code, and how to build them for this CPU. Does not import torch.

Each dtype has two libraries; the second one is for quantized products. The libraries are separate because
each takes seconds to compile, and a server needs only one dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path

from .build import SOURCES, Unit, build_library
from .cpu import has_bfloat16_pairs, is_intel


class Scalar(IntEnum):
    """A dtype of native code: `LLMFW_DTYPE` in csrc/simd.h."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    """Only attention supports float16."""


NATIVE = ("-march=native",)
KERNELS = ("-O3",)
REST = ("-O2",)
"""Flags of all other files, which have no heavy loops: -O3 would double their compile time for nothing."""


def build(
    scalar: Scalar, machine: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """Return the path of a dtype's library; build it first if it does not exist.

    Args:
        scalar: the dtype.
        machine: compiler flags that select the target machine; None: this machine.
        environment: as in `build_library`.

    Raises:
        BuildError: as in `build_library`.
    """
    kernels = [Unit(("attention.cpp",), KERNELS)]
    if scalar is Scalar.FLOAT16:
        others = {file for file in _files() if file.startswith(("attention", "pool"))}
    else:
        others = {file for file in _files() if file not in QUANTIZED}
        kernels.append(Unit(("multiply.cpp",), KERNELS))
    others -= {file for unit in kernels for file in unit.files}
    units = [*kernels, Unit(tuple(sorted(others)), REST)]
    return build_library(_flags(scalar, machine), environment, units=units)


def build_quantized(
    scalar: Scalar, machine: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """Return the path of the library for quantized products; build it first if it does not exist.

    Takes the same arguments as `build`.
    """
    return build_library(_flags(scalar, machine), environment, units=[Unit(QUANTIZED, KERNELS)])


QUANTIZED = ("quantized_products.cpp",)


def _files() -> list[str]:
    return [file.name for file in SOURCES.glob("*.cpp")]


def _flags(scalar: Scalar, machine: Sequence[str] | None) -> list[str]:
    return [f"-DLLMFW_DTYPE={scalar.value}", *(machine_flags() if machine is None else machine)]


def machine_flags(*, in_pairs: bool = False) -> tuple[str, ...]:
    """Return the compiler flags for this machine.

    Args:
        in_pairs: include attention kernels for pairs of bfloat16 even if they are slower.
    """
    # Compared with float32, Intel's CPUs multiply pairs of bfloat16 at half the speed (measured on Sapphire
    # and Emerald Rapids), AMD's at twice the speed.
    if has_bfloat16_pairs() and is_intel():
        return (*NATIVE, f"-DLLMFW_PAIRS={int(in_pairs)}")
    return NATIVE
