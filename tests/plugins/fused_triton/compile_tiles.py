"""Compiles the products by tiles for a GPU that is not there; prints what each needs as JSON.

Run by test_fused_triton.py, in a process of its own, without TRITON_INTERPRET.
"""

from __future__ import annotations

import json
import re
from typing import Any

import triton
from compile_kernels import usage_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from llmfw.plugins.fused_triton.tile_kernels import join_kernel, tiles_kernel
from llmfw.plugins.fused_triton.tiles import TILINGS, Tiling, constants_of

ARCHITECTURE = 90
CASES = (
    (16, Tiling(32, 256, 4, 5)),
    (16, Tiling(128, 128, 4, 3, 8)),
    (32, Tiling(64, 256, 4, 4, 2)),
    (64, Tiling(128, 64, 4, 4, 4)),
    (128, Tiling(256, 64, 8, 4)),
    (128, Tiling(128, 64, 4, 3, 8, joins=False)),
    *((most, tiling) for (_, _, most), tiling in TILINGS.items()),
)
"""Classes of rows, and cuts: the largest of those that the stage `linear` of the GPU script tries, and all in use."""
DIVISIBLE = ("num_outputs", "num_inputs")


def compiled(kernel: Any, rows: int, tiling: Tiling, has_bias: bool) -> dict[str, int]:
    """Compile for bfloat16; return what is needed, and the instructions of tensor cores and of bulk copies."""
    constants = constants_of(tiling, rows, has_bias)
    options = {"num_warps": 4}
    types = {"bias": "*bf16", "output": "*bf16", "partial": "*fp32", "arrived": "*i32"}
    types |= {"weight": f"tensordesc<bf16[{tiling.outputs},{tiling.inputs}]>"}
    types |= {"hidden": f"tensordesc<bf16[{rows},{tiling.inputs}]>"}
    if kernel is tiles_kernel:
        joins = tiling.splits > 1 and tiling.joins
        constants |= {"JOINS": joins, "BLOCK_IN": tiling.inputs, "STAGES": tiling.stages}
        options = {"num_warps": tiling.num_warps}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names
    }
    divisible = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name in DIVISIBLE
    }
    source = ASTSource(kernel, signature, constants, divisible)
    made = triton.compile(source, target=GPUTarget("cuda", ARCHITECTURE, 32), options=options)
    text = made.asm["ptx"]
    product = r"wgmma\.mma_async" if tiling.outputs >= 64 else r"mma\.sync"
    counts = {"products": len(re.findall(product, text)), "copies": text.count("cp.async.bulk.tensor")}
    return usage_of(made) | counts


def main() -> None:
    """Compile all and print one object."""
    usages = {}
    for rows, tiling in CASES:
        usages[f"tiles {tiling}, {rows} rows"] = compiled(tiles_kernel, rows, tiling, has_bias=rows == 64)
        if tiling.splits > 1 and not tiling.joins:
            usages[f"join {tiling}, {rows} rows"] = compiled(join_kernel, rows, tiling, has_bias=False)
    print(json.dumps(usages))


if __name__ == "__main__":
    main()
