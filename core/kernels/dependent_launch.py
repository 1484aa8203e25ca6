"""Programmatic dependent launch: a Triton kernel is launched before the one ahead of it has ended.

Without it, a kernel's launch and first loads begin when all programs of the kernel before it have ended and what they
wrote is visible. Between kernels of a few microseconds each, that is much of the time. Import this module only where
Triton is installed.

A kernel takes part by an argument `launch_pdl: tl.constexpr`, to which its launcher passes `launches_early`. Triton
reads the argument of this name as its launch option, too. Each program of the kernel starts with `launch_next`, and
then calls `await_earlier_kernels`. Each of these rules is needed for right results:

- All programs call it, those that return early included: a kernel of which none waits may end before the kernels ahead
  of it, and the next one waits only for that.
- Before the call, a program reads nothing but weights, and writes nothing. What it reads after the call may be what
  the last kernels wrote; what it writes may be what they still read, as allocators give memory to others at once.
- Weights do not change while a model is served. After a change of weights, a kernel that takes no part must run before
  the next kernel that reads them early.

Kernels that take no part (torch's, cuBLAS') begin when all before them has ended, as ever.
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
"""Environment variable that switches it off if it is 0."""


@cache
def launches_early(device: torch.device) -> bool:
    """Return whether kernels on this device are launched early; it is found out once for a device."""
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
    """Let the next kernel be launched.

    That happens when all programs of this kernel have called it or ended. As they call it first, the next kernel's
    programs come when the last of this kernel's is running: they take only room that those leave. So no kernel is held
    up, and the more of them wait, the more weights are on the way while the memory has little else to do.
    """
    if launch_pdl:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_earlier_kernels(launch_pdl: tl.constexpr) -> None:
    """Wait until all kernels before this one have ended, and what they wrote is visible."""
    if launch_pdl:
        tl.extra.cuda.gdc_wait()


@triton.jit
def loaded(numbers: tl.tensor, launch_pdl: tl.constexpr) -> tl.tensor:
    """Return numbers that were loaded before the wait, as they are.

    Without this, the compiler takes registers with two numbers apart right after the load: a program would wait for
    what it loads before it waits for the kernels ahead, instead of for both at once.
    """
    if launch_pdl:
        pack: tl.constexpr = 32 // numbers.dtype.primitive_bitwidth
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [numbers], numbers.dtype, False, pack)
    return numbers
