"""The stage `linear` of the GPU script, with torch's product in the place of our kernel's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from .gpu_script import gpu_script

pytest.importorskip("triton")


@pytest.mark.parametrize(("rows", "factor"), [(1, 1.0), (8, 1.0), (1, 1.1)])
def test_a_line_compares_all_cuts(monkeypatch: pytest.MonkeyPatch, rows: int, factor: float) -> None:
    weights = [torch.randn(32, 64) for _ in range(2)]
    with gpu_script("stages.linear", "limits") as (stage, limits):
        monkeypatch.setattr(stage, "_product", lambda cut: lambda x, w: functional.linear(x, w) * factor)
        rates = limits.Ceilings(bandwidth=1e9, flops=1e9)
        line = stage._measure_case("case", torch.randn(rows, 64), weights, rates, has_kernel=True)
        assert len(line.detail["cuts_s"]) == len(stage.CUTS) + 1
    assert line.failed == (factor != 1.0)
    seconds = line.detail["torch_s"] if rows == 8 else line.detail["cuts_s"][line.detail["default"]]
    assert line.ms == pytest.approx(1000 * seconds)
    assert line.ratio == pytest.approx(line.limit_ms / line.ms)
