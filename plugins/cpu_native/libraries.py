"""The libraries of native code, and their builds for this CPU. Imports no torch.

Each type of numbers has a library, and one for quantised products: the kernels of each take seconds to compile, and a
server needs one type. Knows nothing of the callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path

from .build import SOURCES, Unit, build_library
from .cpu import has_bfloat16_pairs, is_intel


class Scalar(IntEnum):
    """A type of numbers; LLMFW_DTYPE of csrc/simd.h."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    """There is attention alone in it."""


NATIVE = ("-march=native",)
KERNELS = ("-O3",)
REST = ("-O2",)
"""These files compile in half the time of -O3 and run as fast, because all computing loops are in kernels."""


def build(
    scalar: Scalar, machine: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """Return the path of the library for a type of numbers, built if need be.

    Args:
        machine: flags that say for which; None: for this one.
        environment: see `build_library`.

    Raises:
        BuildError: see `build_library`.
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
    """Return the path of the library for quantised products, built if need be. The arguments are those of `build`."""
    return build_library(_flags(scalar, machine), environment, units=[Unit(QUANTIZED, KERNELS)])


QUANTIZED = ("quantized_products.cpp",)


def _files() -> list[str]:
    return [file.name for file in SOURCES.glob("*.cpp")]


def _flags(scalar: Scalar, machine: Sequence[str] | None) -> list[str]:
    return [f"-DLLMFW_DTYPE={scalar.value}", *(machine_flags() if machine is None else machine)]


def machine_flags(*, in_pairs: bool = False) -> tuple[str, ...]:
    """Return what tells the compiler of this machine.

    Args:
        in_pairs: whether attention has kernels for pairs of bfloat16 even if they are slower.
    """
    # Intel's CPUs multiply pairs at half the rate at which they multiply float32 (measured on Sapphire and Emerald
    # Rapids), AMD's at twice.
    if has_bfloat16_pairs() and is_intel():
        return (*NATIVE, f"-DLLMFW_PAIRS={int(in_pairs)}")
    return NATIVE
