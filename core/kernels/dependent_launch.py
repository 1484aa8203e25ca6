"""Programmatic dependent launch: launches a Triton kernel before the previous kernel has ended.

Without programmatic dependent launch, a kernel starts only after all programs of the previous kernel have
ended and their writes are visible. For kernels of a few microseconds each, this wait is a large part of the
time. Import this module only if Triton is installed.

To take part, a kernel has an argument `launch_pdl: tl.constexpr`, to which its launcher passes the result of
`launches_early`. Triton also reads the argument of this name as a launch option. Each program of the kernel
first calls `launch_next`, and then `await_earlier_kernels`. Results are correct only if all of these rules
hold:

- All programs call `await_earlier_kernels`, including programs that return early. If no program of a kernel
  waits, the kernel may end before the earlier kernels, and the next kernel waits only for this one.
- Before the call, a program reads only weights, and writes nothing. Earlier kernels may still write all
  other data. Earlier kernels may also still read the memory that the program writes, because allocators
  reuse memory at once.
- Weights do not change while a model is served. After the weights change, a kernel that takes no part must
  run before the next kernel that reads weights early.

Kernels that take no part, such as torch's and cuBLAS', start after all earlier kernels have ended.
"""

from __future__ import annotations

import os
from functools import cache

import torch
import triton
import triton.language as tl

OLDEST = (9, 0)
"""The first compute capability with programmatic dependent launch."""

VARIABLE = "LLMFW_TRITON_PDL"
"""Environment variable that disables programmatic dependent launch if it is 0 or empty."""


@cache
def launches_early(device: torch.device) -> bool:
    """Return whether kernels on this device are launched early. The result is cached per device."""
    if device.type != "cuda" or torch.version.hip is not None or not is_compiled():
        return False
    return (
        os.environ.get(VARIABLE, "1") not in ("", "0") and torch.cuda.get_device_capability(device) >= OLDEST
    )


def is_compiled() -> bool:
    """Return whether kernels are compiled, not interpreted."""
    return isinstance(await_earlier_kernels, triton.JITFunction)


@triton.jit
def launch_next(launch_pdl: tl.constexpr) -> None:
    """Allow the launch of the next kernel.

    The next kernel is launched when all programs of this kernel have called this function or ended. Because
    programs call it first, the next kernel's programs start only when all programs of this kernel are
    running. They use only the resources that are left, so no kernel is delayed. While they wait, they load
    weights when the memory has little other work.
    """
    if launch_pdl:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_earlier_kernels(launch_pdl: tl.constexpr) -> None:
    """Wait until all earlier kernels have ended and their writes are visible."""
    if launch_pdl:
        tl.extra.cuda.gdc_wait()


@triton.jit
def loaded(numbers: tl.tensor, launch_pdl: tl.constexpr) -> tl.tensor:
    """Return numbers that were loaded before the wait, unchanged.

    Without this function, the compiler unpacks registers that hold two numbers right after the load. A
    program would then wait first for the load and then for the earlier kernels, instead of for both at once.
    """
    if launch_pdl:
        pack: tl.constexpr = 32 // numbers.dtype.primitive_bitwidth
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [numbers], numbers.dtype, False, pack)
    return numbers
