"""Products by tiles against torch: by Triton's interpreter where TRITON_INTERPRET=1, else on a GPU with what they need.

Run by test_interpreted_kernels.py and, on a GPU, by test_fused_triton.py.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn
from torch.nn import functional

from llmfw.plugins.fused_triton import linear, tiles
from llmfw.plugins.fused_triton.linear import FewRowsLinear, LinearPass
from llmfw.plugins.fused_triton.tiles import Tiling, linear_by_tiles, new_counters

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
IS_HELD = DEVICE == "cpu" or torch.cuda.get_device_capability()[0] == tiles.ARCHITECTURE
pytestmark = pytest.mark.skipif(not IS_HELD, reason="needs a GPU of compute capability 9")

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16], ids=str
)
ULP = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
WHOLE, LAST, AFTER = Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3, 3), Tiling(64, 64, 4, 3, 4, joins=False)
SMALL = Tiling(32, 128, 4, 3, 2)
TILINGS = pytest.mark.parametrize("tiling", [WHOLE, LAST, AFTER, SMALL], ids=str)
LARGE = [
    (4096, 14336, Tiling(128, 64, 4, 3, 8)),
    (6144, 4096, Tiling(256, 64, 8, 4, 5)),
    (28672, 4096, WHOLE),
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def check(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, tiling: Tiling
) -> torch.Tensor:
    counters = new_counters(len(weight), {0: tiling}, weight.device)
    torch.full(
        (len(hidden), len(weight)), torch.nan, device=DEVICE, dtype=hidden.dtype
    )  # what is not written
    found = linear_by_tiles(hidden, weight, bias, tiling, counters)
    wanted = functional.linear(hidden.double(), weight.double(), None if bias is None else bias.double())
    error = (found.double() - wanted).abs() / wanted.abs().clamp(min=weight.shape[1] ** 0.5)
    assert error.max() <= ULP[hidden.dtype]
    assert not counters.any()
    return found


@DTYPES
@TILINGS
@pytest.mark.parametrize("rows", [3, 20, 64, 104])
def test_tiles_equal_torch(rows: int, tiling: Tiling, dtype: torch.dtype) -> None:
    """With a last tile and a last block of inputs that are not whole."""
    bias = draw(72, dtype=dtype) if rows == 20 else None
    check(draw(rows, 272, dtype=dtype), draw(72, 272, dtype=dtype), bias, tiling)


@pytest.mark.skipif(DEVICE == "cpu", reason="takes the interpreter minutes")
@pytest.mark.parametrize(("outputs", "inputs", "tiling"), LARGE, ids=str)
def test_large_tiles_equal_torch(outputs: int, inputs: int, tiling: Tiling) -> None:
    for rows in (8, 32, 64, 104):
        hidden = draw(rows, inputs, dtype=torch.bfloat16)
        weight = draw(outputs, inputs, dtype=torch.bfloat16)
        first = check(hidden, weight, None, tiling)
        assert all(torch.equal(check(hidden, weight, None, tiling), first) for _ in range(20))


@TILINGS
def test_a_row_keeps_its_bits_within_a_class(tiling: Tiling) -> None:
    weight, hidden = draw(40, 272, dtype=torch.float16), draw(32, 272, dtype=torch.float16)
    whole = check(hidden, weight, None, tiling)
    assert torch.equal(check(hidden[:17], weight, None, tiling), whole[:17])


def test_unaligned_rows_are_copied() -> None:
    weight, flat = draw(40, 64, dtype=torch.float16), draw(5 * 64 + 1, dtype=torch.float16)
    check(flat[1:].reshape(5, 64), weight, None, WHOLE)


@pytest.fixture
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tiles for 3 to 16 and for 33 to 64 rows of a small layer."""
    monkeypatch.setattr(linear, "MIN_OUTPUTS", 1)
    monkeypatch.setattr(linear, "can_tile", lambda weight: True)
    monkeypatch.setattr(tiles, "TILINGS", {(64, 32, 16): LAST, (64, 32, 64): WHOLE})


@pytest.mark.usefixtures("in_use")
def test_a_layer_uses_tiles_for_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.ModuleList([nn.Linear(32, 40)]).to(DEVICE, torch.float16).requires_grad_(False)
    plain = model[0]
    assert LinearPass().apply(model) == 1
    assert isinstance(model[0], FewRowsLinear)
    assert set(model[0].tilings) == {16, 64}
    calls = []

    def spy(hidden: torch.Tensor, *rest: object) -> torch.Tensor:
        calls.append(hidden.shape[-2])
        return linear_by_tiles(hidden, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(linear, "linear_by_tiles", spy)
    for rows in (2, 3, 16, 17, 33, 64, 65, 129):
        hidden = draw(1, rows, 32, dtype=torch.float16)
        torch.testing.assert_close(model[0](hidden), plain(hidden), atol=4e-3, rtol=4e-3)
    assert calls == [3, 16, 33, 64]


@pytest.mark.usefixtures("in_use")
def test_tiles_with_other_results_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "linear_by_tiles", lambda hidden, *_: hidden.new_zeros(len(hidden), 40))
    model = nn.ModuleList([nn.Linear(32, 40)]).to(DEVICE, torch.float16).requires_grad_(False)
    assert LinearPass().apply(model) == 1
    assert model[0].tilings == {}
