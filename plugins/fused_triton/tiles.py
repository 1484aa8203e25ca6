"""Computes products of 3 to 128 rows with linear layers' weights on tensor cores: cuts and launches them.

A cut belongs to a shape of weights and a class of row counts. Within a class, a row gives the same bits for
any number of rows. `TILINGS` lists the cuts; torch computes all other products. The benchmark stage `linear`
compares other cuts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from .tile_kernels import join_kernel, tiles_kernel

MIN_ROWS = 3
ROW_CLASSES = (16, 32, 64, 128)
"""Largest number of rows of each class. Tensor cores compute this number of rows, even if there are fewer."""

ARCHITECTURE = 9
"""Major compute capability of the GPUs that have the tensor descriptors that the kernel needs."""

DTYPES = (torch.float16, torch.bfloat16)
JOINED_NUMBERS = 4096
"""Numbers of a part that a program adds up at a time: 16 or 32 for each thread."""


class Tiling(NamedTuple):
    """How a product is cut into programs.

    Attributes:
        outputs: outputs of one program.
        inputs: inputs that a program reads at once.
        num_warps: warps of a program.
        stages: blocks of inputs in shared memory.
        splits: number of parts of the inputs; each part has its own program.
        joins: whether the last program of each tile adds up the parts; if not, a second kernel does.
    """

    outputs: int
    inputs: int
    num_warps: int
    stages: int
    splits: int = 1
    joins: bool = True


TILINGS: dict[tuple[int, int, int], Tiling] = {}
"""(Outputs and inputs, each rounded up to a power of 2, and the class of rows) → cut. Empty: none is measured yet."""


def rows_class(num_rows: int) -> int | None:
    """Return the class of a number of rows, or None if the kernel does not compute that number."""
    if num_rows < MIN_ROWS:
        return None
    return next((most for most in ROW_CLASSES if num_rows <= most), None)


def fewest_rows(most: int) -> int:
    """Return the smallest number of rows of the class whose largest number is `most`."""
    return next((smaller + 1 for smaller in reversed(ROW_CLASSES) if smaller < most), MIN_ROWS)


def can_tile(weight: torch.Tensor) -> bool:
    """Return whether the kernel can compute products with a weight.

    The kernel needs 16-bit weights and a GPU of `ARCHITECTURE`.
    """
    if weight.dtype not in DTYPES or weight.device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(weight.device)[0] == ARCHITECTURE


def choose_tilings(num_outputs: int, num_inputs: int) -> dict[int, Tiling]:
    """Return the cuts of a product with a weight [num_outputs, num_inputs], by class of rows."""
    size = (triton.next_power_of_2(num_outputs), triton.next_power_of_2(num_inputs))
    return {most: TILINGS[(*size, most)] for most in ROW_CLASSES if (*size, most) in TILINGS}


def new_counters(num_outputs: int, tilings: dict[int, Tiling], device: torch.device) -> torch.Tensor:
    """Return counters for a layer with these cuts. Only launches of one stream may share them."""
    fewest = min(tiling.outputs for tiling in tilings.values())
    return torch.zeros(triton.cdiv(num_outputs, fewest), dtype=torch.int32, device=device)


def blocks(matrix: torch.Tensor, *shape: int) -> TensorDescriptor:
    """Return the descriptor of a dense matrix that is read in blocks of a shape."""
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.shape[1], 1], list(shape))


def linear_by_tiles(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    tiling: Tiling,
    counters: torch.Tensor,
) -> torch.Tensor:
    """Return hidden · weightᵀ + bias, [..., outputs], added up in float32 and rounded once.

    Args:
        hidden: [..., inputs] with 1 to 128 rows, in the dtype of the weight.
        weight: [outputs, inputs], dense, aligned to 16 bytes; `inputs` is a multiple of 8.
        bias: [outputs], dense.
        tiling: how to cut the product.
        counters: from `new_counters`.
    """
    launch = Launch(hidden, weight, bias, tiling, counters)
    with torch.cuda.device_of(hidden):
        launch.run()
    return launch.output


def constants_of(tiling: Tiling, block_rows: int, has_bias: bool) -> dict[str, int]:
    """Return the constants that both kernels of a product share, for a class of rows."""
    return {
        "HAS_BIAS": has_bias,
        "MAX_SPLITS": triton.next_power_of_2(tiling.splits),
        "BLOCK_OUT": tiling.outputs,
        "BLOCK_ROWS": block_rows,
        "JOIN_ROWS": min(block_rows, max(8, JOINED_NUMBERS // tiling.outputs)),
    }


class Launch:
    """The arguments of one product's kernels."""

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        tiling: Tiling,
        counters: torch.Tensor,
    ) -> None:
        self.tiling = tiling
        num_outputs, num_inputs = weight.shape
        rows = hidden.reshape(-1, num_inputs).contiguous()
        if rows.data_ptr() % 16:  # a slice; descriptors need aligned tensors
            rows = rows.clone()
        block_rows = next(most for most in ROW_CLASSES if len(rows) <= most)
        self.output = torch.empty((*hidden.shape[:-1], num_outputs), dtype=hidden.dtype, device=hidden.device)
        self.num_tiles = triton.cdiv(num_outputs, tiling.outputs)
        part_size = tiling.outputs * block_rows
        num_numbers = tiling.splits * self.num_tiles * part_size if tiling.splits > 1 else 1
        self.partial = torch.empty(num_numbers, dtype=torch.float32, device=hidden.device)
        self.bias = weight if bias is None else bias
        self.counters = counters
        self.weight_blocks = blocks(weight, tiling.outputs, tiling.inputs)
        self.row_blocks = blocks(rows, block_rows, tiling.inputs)
        self.sizes = (num_outputs, num_inputs, len(rows))
        self.constants = constants_of(tiling, block_rows, bias is not None)

    def run(self) -> None:
        """Launch the kernels, which write their results to `output`."""
        arguments, options = self.product()
        tiles_kernel[(self.num_tiles, self.tiling.splits)](*arguments, **options)
        if self.is_joined_after:
            arguments, options = self.join()
            num_blocks = triton.cdiv(self.sizes[2], self.constants["JOIN_ROWS"])
            join_kernel[(self.num_tiles, num_blocks)](*arguments, **options)

    def compile(self) -> None:
        """Compile the kernels, without running them."""
        arguments, options = self.product()
        tiles_kernel.warmup(*arguments, grid=(1,), **options)
        if self.is_joined_after:
            arguments, options = self.join()
            join_kernel.warmup(*arguments, grid=(1,), **options)

    @property
    def is_joined_after(self) -> bool:
        """Whether a second kernel adds up the parts."""
        return self.tiling.splits > 1 and not self.tiling.joins

    def product(self) -> tuple[tuple[object, ...], dict[str, int]]:
        """Return the arguments of the product's kernel."""
        tiling = self.tiling
        num_outputs, num_inputs, num_rows = self.sizes
        arguments = (
            self.weight_blocks,
            self.row_blocks,
            self.bias,
            self.output,
            self.partial,
            self.counters,
            num_outputs,
            num_inputs,
            num_rows,
            tiling.splits,
            triton.cdiv(triton.cdiv(num_inputs, tiling.inputs), tiling.splits),
        )
        options = self.constants | {
            "JOINS": tiling.splits > 1 and tiling.joins,
            "BLOCK_IN": tiling.inputs,
            "STAGES": tiling.stages,
            "num_warps": tiling.num_warps,
        }
        return arguments, options

    def join(self) -> tuple[tuple[object, ...], dict[str, int]]:
        """Return the arguments of the kernel that adds up the parts."""
        num_outputs, _, num_rows = self.sizes
        arguments = (
            self.partial,
            self.bias,
            self.output,
            self.num_tiles,
            self.tiling.splits,
            num_outputs,
            num_rows,
        )
        return arguments, self.constants | {"num_warps": 4}
