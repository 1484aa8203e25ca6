"""Computes linear layers with few rows: cuts their products into programs, and launches our kernel.

The cut of a product depends only on the shape of its weight, and so does the order in which a row's products
are added. So a row gives the same bits alone and together with up to `MAX_ROWS - 1` other rows. There is no
tuning at run time: tuning would delay requests, and is impossible while a CUDA graph is captured. The
benchmark stage `linear` compares other cuts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from llmfw.core.kernels.dependent_launch import launches_early

from .kernels import linear_kernel

MAX_ROWS = 2
"""More rows are left to kernels that use tensor cores. On an H200, our kernel took 0.75 to 0.97 of torch's
time with 1 row, 0.78 to 0.96 with 2, and 0.98 to 1.14 with 4."""

ALIGNMENT = 16
"""A row's length must be a multiple of this number, so that loads of 16 bytes can read each row."""

INPUTS_PER_WARP = 256
"""Inputs that a warp reads at once: 8 for each thread."""

MAX_BLOCK_IN = 1024
MANY_OUTPUTS = 16384


class Cut(NamedTuple):
    """How a product is cut into programs.

    Attributes:
        outputs: outputs of one program.
        inputs: inputs that a program reads at once.
        num_warps: warps of a program.
        stages: blocks of inputs that are loaded at a time, through shared memory; 1: through registers.
    """

    outputs: int
    inputs: int
    num_warps: int
    stages: int = 1


def choose_cut(num_outputs: int, num_inputs: int) -> Cut:
    """Return the cut of a product with a weight [num_outputs, num_inputs].

    More outputs per program reuse each input more often; fewer give more programs. The choice gives each of
    about 130 multiprocessors several programs, so inputs are not split among programs. If there are many
    programs, longer blocks of inputs were up to 3 % faster on an H200; more outputs were not faster.
    """
    most = 2 * MAX_BLOCK_IN if num_outputs >= MANY_OUTPUTS else MAX_BLOCK_IN
    inputs = min(most, triton.next_power_of_2(num_inputs))
    return Cut(4 if num_outputs >= 2048 else 2, inputs, max(1, inputs // INPUTS_PER_WARP))


def linear_of_few_rows(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, cut: Cut | None = None
) -> torch.Tensor:
    """Return hidden · weightᵀ + bias, [..., outputs], added up in float32 and rounded once.

    Args:
        hidden: [..., inputs] with at least one row, in the dtype of the weight.
        weight: [outputs, inputs], dense, aligned to 16 bytes; `inputs` is a multiple of `ALIGNMENT`.
        bias: [outputs], dense.
        cut: how to cut the product; None: the result of `choose_cut`.
    """
    num_outputs, num_inputs = weight.shape
    cut = cut or choose_cut(num_outputs, num_inputs)
    rows = hidden.reshape(-1, num_inputs).contiguous()
    output = torch.empty((*hidden.shape[:-1], num_outputs), dtype=hidden.dtype, device=hidden.device)
    with torch.cuda.device_of(hidden):
        linear_kernel[(triton.cdiv(num_outputs, cut.outputs),)](
            rows,
            weight,
            weight if bias is None else bias,
            output,
            num_outputs,
            num_inputs,
            HAS_BIAS=bias is not None,
            ROWS=len(rows),
            PADDED_ROWS=triton.next_power_of_2(len(rows)),
            IS_EVEN=num_inputs % cut.inputs == 0,
            BLOCK_OUT=cut.outputs,
            BLOCK_IN=cut.inputs,
            STAGES=cut.stages,
            launch_pdl=launches_early(hidden.device),
            num_warps=cut.num_warps,
        )
    return output
