"""The stage `linear` of the GPU script, with torch's product in the place of our kernels'."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from .gpu_script import gpu_script

pytest.importorskip("triton")


def by_torch(factor: float = 1.0) -> Any:
    return lambda x, w: functional.linear(x, w) * factor


def fails(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("out of resource")


@pytest.mark.parametrize(("rows", "factor"), [(1, 1.0), (8, 1.0), (1, 1.1), (8, 1.1)])
def test_a_line_compares_the_right_cuts(rows: int, factor: float) -> None:
    weights = [torch.randn(32, 64) for _ in range(2)]
    with gpu_script("stages.linear", "limits", "cuts") as (stage, limits, cuts):
        rates = limits.Ceilings(bandwidth=1e9, flops=1e9)
        tried = [
            cuts.Cut("first", by_torch(factor)),
            cuts.Cut("second", by_torch()),
            cuts.Cut("third", fails),
        ]
        line = stage._measure_case("case", torch.randn(rows, 64), weights, rates, tried)
    assert line.failed == (factor != 1.0 and rows == 1)
    assert set(line.detail["cuts_s"]) == {"first", "second"} - ({"first"} if factor != 1.0 else set())
    assert line.detail["cuts_failed"]["third"] == "RuntimeError: out of resource"
    is_first = rows == 1 and factor == 1.0
    seconds = line.detail["cuts_s"]["first"] if is_first else line.detail["torch_s"]
    assert line.ms == pytest.approx(1000 * seconds)
    assert line.ratio == pytest.approx(line.limit_ms / line.ms)


@pytest.mark.parametrize("rows", [1, 8, 32, 64, 104])
@pytest.mark.parametrize(("outputs", "inputs"), [(6144, 4096), (4096, 14336), (28672, 4096), (128256, 4096)])
def test_each_case_has_several_cuts(rows: int, outputs: int, inputs: int) -> None:
    with gpu_script("cuts") as (cuts,):
        names = [cut.name for cut in cuts.cuts(rows, outputs, inputs, torch.device("cpu"))]
        assert 3 <= len(names) == len(set(names)) <= cuts.MOST_TILINGS
        for tiled_outputs, _, _, _, splits, _ in cuts.tilings(rows, outputs):
            programs = splits * outputs / tiled_outputs
            assert splits == 1 or programs <= 2 * cuts.MULTIPROCESSORS
