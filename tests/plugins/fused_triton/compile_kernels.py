"""Compiles every kernel, as real models need it, for GPUs that are not there; prints what each needs as JSON.

Run by test_fused_triton.py, in a process of its own, without TRITON_INTERPRET.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from llmfw.plugins.fused_triton import few_rows, ops
from llmfw.plugins.fused_triton.kernels import linear_kernel, rms_norm_kernel, rope_kernel, silu_mul_kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ARCHITECTURES = (80, 90)
WIDTHS = ((128, False, False), (4096, True, False), (8192, True, False), (16384, True, True))
HEAD_DIMS = ((64, True, False), (128, False, False), (128, True, False), (256, True, True))
WEIGHTS = (
    *(
        (6144, 4096, False),
        (4096, 4096, False),
        (28672, 4096, False),
        (4096, 14336, False),
        (128256, 4096, False),
    ),
    *((1152, 896, True), (11008, 2048, False)),
)
"""Outputs and inputs of linear layers, and whether they have a bias: of Llama 3.1 8B, and two of other models."""
MULTIPLES = ("_stride", "width", "num_outputs", "num_inputs")
"""Endings of the names of numbers that are multiples of 16 in every real model, which the launcher finds out."""


def launches() -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """Yield a name, the kernel, its constants and its warps, for each launch that `ops` makes."""
    for width, adds, from_one in WIDTHS:
        shape = ops.norm_shape(width)
        constants = {"ADDS": adds, "FROM_ONE": from_one, "BLOCK_ROWS": shape.block_rows, "BLOCK": shape.block}
        yield f"norm of {width}", rms_norm_kernel, constants, shape.num_warps
    yield "silu", silu_mul_kernel, {"BLOCK": ops.SILU_BLOCK}, ops.SILU_WARPS
    for head_dim, norms, from_one in HEAD_DIMS:
        constants = {
            "NORMS": norms,
            "FROM_ONE": from_one,
            "HALF": head_dim // 2,
            "BLOCK_HEADS": ops.ROPE_HEADS,
            "BLOCK_HALF": triton.next_power_of_2(head_dim // 2),
        }
        yield f"rope of {head_dim}, norms={norms}", rope_kernel, constants, ops.ROPE_WARPS
    one_key_head = constants | {"num_key_heads": 1}  # the launcher makes a constant of 1
    yield "rope with one key head", rope_kernel, one_key_head, ops.ROPE_WARPS
    yield from linear_launches()


def linear_launches() -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """Yield the launches of linear layers of few rows."""
    for num_outputs, num_inputs, has_bias in WEIGHTS:
        cut = few_rows.choose_cut(num_outputs, num_inputs)
        for rows in range(1, few_rows.MAX_ROWS + 1):
            constants = {
                "HAS_BIAS": has_bias,
                "ROWS": rows,
                "PADDED_ROWS": triton.next_power_of_2(rows),
                "IS_EVEN": num_inputs % cut.inputs == 0,
                "BLOCK_OUT": cut.outputs,
                "BLOCK_IN": cut.inputs,
                "STAGES": cut.stages,
            }
            yield f"{rows} rows times {num_outputs} x {num_inputs}", linear_kernel, constants, cut.num_warps


def compiled(kernel: Any, constants: dict[str, Any], num_warps: int, architecture: int) -> dict[str, int]:
    """Compile for bfloat16 and return bytes of stack and of shared memory, and registers."""
    signature = {}
    for name in kernel.arg_names:
        is_number = name.startswith("num_") or name.endswith(MULTIPLES)
        kind = "fp32" if name.endswith("eps") else "i32" if is_number else "*bf16"
        signature[name] = "constexpr" if name in constants else kind
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if signature[name] == "*bf16" or name.endswith(MULTIPLES)
    }
    source = ASTSource(kernel, signature, constants, divisible)
    target = GPUTarget("cuda", architecture, 32)
    made = triton.compile(source, target=target, options={"num_warps": num_warps})
    return usage_of(made)


def usage_of(made: Any) -> dict[str, int]:
    """Return what a compiled kernel needs: bytes of stack and of shared memory, and registers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    usage = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", said.stdout))
    return {"shared": made.metadata.shared} | {name: int(value) for name, value in usage.items()}


def main() -> None:
    """Compile all and print one object."""
    print(
        json.dumps(
            {
                f"{name} for sm_{architecture}": compiled(kernel, constants, num_warps, architecture)
                for name, kernel, constants, num_warps in launches()
                for architecture in ARCHITECTURES
            }
        )
    )


if __name__ == "__main__":
    main()
