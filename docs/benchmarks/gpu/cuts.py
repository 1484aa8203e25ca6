"""The ways to cut products with few rows into programs that the stage `linear` tries. Imports Triton when used."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

GEMV_CUTS = ((2, 1024, 4, 1), (4, 1024, 4, 1), (4, 2048, 4, 1))
"""For one or two rows: outputs of a program, inputs that it reads at once, warps, stages. Of eleven the fastest."""

BASES = {
    16: (
        (32, 256, 4, 5, 2),
        (16, 512, 4, 4, 2),
        (64, 128, 4, 5, 2),
        (128, 128, 4, 3, 2),
        (128, 128, 4, 5, 1),
    ),
    32: ((32, 256, 4, 4, 2), (64, 128, 4, 4, 2), (128, 64, 4, 5, 2), (128, 128, 4, 5, 1), (64, 256, 4, 4, 1)),
    64: (
        (64, 128, 4, 3, 2),
        (128, 64, 4, 4, 2),
        (128, 128, 4, 4, 1),
        (128, 128, 8, 4, 1),
        (256, 64, 8, 5, 1),
    ),
    128: (
        (256, 64, 8, 4, 1),
        (128, 64, 4, 3, 2),
        (128, 64, 8, 3, 2),
        (128, 64, 8, 6, 1),
        (128, 128, 8, 3, 1),
        (64, 64, 4, 4, 2),
    ),
}
"""By class of rows: outputs, inputs, warps, stages, and programs that a multiprocessor holds at a time."""

MULTIPROCESSORS = 132
MOST_SPLITS = 8
MOST_TILINGS = 12
COMPILERS = 16

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Cut:
    """One way to compute a product by our kernels.

    Attributes:
        name: for the line.
        product: (hidden, weight) → output.
    """

    name: str
    product: Product


def tilings(rows: int, num_outputs: int) -> list[tuple[int, int, int, int, int, bool]]:
    """Return the arguments of the tilings to try.

    With as many splits as multiprocessors hold programs at a time, all programs run at once. The parts are added up by
    the last program or by a second kernel. With half of the splits there is less to add up.
    """
    from llmfw.plugins.fused_triton.tiles import rows_class

    most = rows_class(rows)
    if most is None:
        return []
    by_rank: list[list[tuple[int, int, int, int, int, bool]]] = [[], [], []]
    for outputs, inputs, warps, stages, held in BASES[most]:
        num_tiles = -(-num_outputs // outputs)
        splits = max(1, min(MOST_SPLITS, held * MULTIPROCESSORS // num_tiles))
        by_rank[0].append((outputs, inputs, warps, stages, splits, True))
        if splits > 1:
            by_rank[1].append((outputs, inputs, warps, stages, splits // 2, True))
            by_rank[2].append((outputs, inputs, warps, stages, splits, False))
    if most == max(BASES):  # many rows have large parts, which one program takes long to add up
        by_rank[1:] = reversed(by_rank[1:])
    return list(itertools.chain(*by_rank))[:MOST_TILINGS]


def cuts(rows: int, num_outputs: int, num_inputs: int, device: torch.device) -> list[Cut]:
    """Return what is tried for a number of rows, that of the pass `triton-linear` first, if it has one."""
    from llmfw.plugins.fused_triton import few_rows, tiles

    if rows <= few_rows.MAX_ROWS:
        default = few_rows.choose_cut(num_outputs, num_inputs)
        return [_gemv(few_rows.Cut(*cut)) for cut in dict.fromkeys((tuple(default), *GEMV_CUTS))]
    served = _served(rows, num_outputs, num_inputs)
    tried = [tiles.Tiling(*arguments) for arguments in tilings(rows, num_outputs)]
    return [_tiled(tiling, num_outputs, device) for tiling in dict.fromkeys((*served, *tried))]


def is_served(rows: int, num_outputs: int, num_inputs: int) -> bool:
    """Return whether the pass computes such a product by one of our kernels."""
    from llmfw.plugins.fused_triton.few_rows import MAX_ROWS

    return rows <= MAX_ROWS or bool(_served(rows, num_outputs, num_inputs))


def compile_all(cases: Iterable[tuple[int, int, int]], dtype: torch.dtype, device: torch.device) -> None:
    """Compile the tilings of all cases (rows, outputs, inputs) at once; what fails, fails again when it is called."""
    import triton

    from llmfw.plugins.fused_triton import tiles

    pool = ThreadPoolExecutor(COMPILERS)
    with pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        for rows, num_outputs, num_inputs in cases:
            hidden = torch.empty(rows, num_inputs, dtype=dtype, device=device)
            weight = torch.empty(num_outputs, num_inputs, dtype=dtype, device=device)
            for tiling in map(tiles.Tiling._make, tilings(rows, num_outputs)):
                counters = tiles.new_counters(num_outputs, {rows: tiling}, device)
                tiles.Launch(hidden, weight, None, tiling, counters).compile()


def _served(rows: int, num_outputs: int, num_inputs: int) -> list[Any]:
    from llmfw.plugins.fused_triton.tiles import choose_tilings, rows_class

    tiling = choose_tilings(num_outputs, num_inputs).get(rows_class(rows) or 0)
    return [] if tiling is None else [tiling]


def _gemv(cut: Any) -> Cut:
    from llmfw.plugins.fused_triton.few_rows import linear_of_few_rows

    name = f"{cut.outputs} × {cut.inputs}, {cut.num_warps} warps, {cut.stages} stages"
    return Cut(name, lambda hidden, weight: linear_of_few_rows(hidden, weight, None, cut))


def _tiled(tiling: Any, num_outputs: int, device: torch.device) -> Cut:
    from llmfw.plugins.fused_triton.tiles import linear_by_tiles, new_counters

    name = f"{tiling.outputs} × {tiling.inputs}, {tiling.num_warps} warps, {tiling.stages} stages"
    if tiling.splits > 1:
        name += f", {tiling.splits} splits {'joined by the last' if tiling.joins else 'joined after'}"
    counters = new_counters(num_outputs, {0: tiling}, device)
    return Cut(name, lambda hidden, weight: linear_by_tiles(hidden, weight, None, tiling, counters))
