"""Linear layers of few rows against torch: by Triton's interpreter where TRITON_INTERPRET=1, else on a GPU.

Run by test_interpreted_kernels.py and, on a GPU, by test_fused_triton.py.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn
from torch.nn import functional

from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.testing.module_pass import ModulePassTests
from llmfw.core.testing.module_pass_models import build_model
from llmfw.plugins.fused_triton import few_rows, linear
from llmfw.plugins.fused_triton.few_rows import MAX_ROWS, Cut, choose_cut, linear_of_few_rows
from llmfw.plugins.fused_triton.linear import FewRowsLinear, LinearPass

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
HALVES = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
ULP = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SHAPES = [(8, 16), (5, 48), (7, 1040), (3, 2048), (33, 1024)]
"""Outputs and inputs: fewer than a block, blocks and a rest, whole blocks."""
LARGE_SHAPES = [(6144, 4096), (4096, 14336), (28672, 4096)]


@pytest.fixture(autouse=True)
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MIN_OUTPUTS", 1)
    torch.manual_seed(0)


@pytest.fixture
def one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter run one program for a product: each takes it milliseconds."""
    if DEVICE == "cpu":
        monkeypatch.setattr(few_rows, "choose_cut", lambda *shape: Cut(256, 128, 1))


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def check(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, cut: Cut | None) -> None:
    found = linear_of_few_rows(hidden, weight, bias, cut)
    wanted = functional.linear(hidden.double(), weight.double(), None if bias is None else bias.double())
    assert found.dtype == hidden.dtype
    assert found.is_contiguous()
    error = (found.double() - wanted).abs() / wanted.abs().clamp(min=weight.shape[1] ** 0.5)
    assert error.max() <= ULP[hidden.dtype]


@DTYPES
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES if DEVICE == "cpu" else SHAPES + LARGE_SHAPES, ids=str)
def test_few_rows_equal_torch(shape: tuple[int, int], has_bias: bool, dtype: torch.dtype) -> None:
    weight, bias = draw(*shape, dtype=dtype), draw(shape[0], dtype=dtype) if has_bias else None
    for rows in range(1, MAX_ROWS + 1):
        check(draw(rows, shape[1], dtype=dtype), weight, bias, None)


@pytest.mark.parametrize(
    "cut", [Cut(8, 512, 2), Cut(1, 2048, 4), Cut(16, 256, 1, 2), Cut(4, 1024, 4, 3)], ids=str
)
def test_every_cut_gives_the_product(cut: Cut) -> None:
    for rows in (1, 3, 8):
        check(draw(rows, 1040, dtype=torch.float16), draw(19, 1040, dtype=torch.float16), None, cut)


@DTYPES
def test_a_row_does_not_depend_on_others(dtype: torch.dtype) -> None:
    """Bit for bit, whatever the number of rows; and an infinite neighbor stays alone."""
    weight, hidden = draw(9, 1040, dtype=dtype), draw(MAX_ROWS, 1040, dtype=dtype)
    alone = torch.cat([linear_of_few_rows(row[None], weight) for row in hidden])
    for rows in range(2, MAX_ROWS + 1):
        assert torch.equal(linear_of_few_rows(hidden[:rows], weight), alone[:rows])
    hidden[0, 3] = torch.inf
    assert torch.equal(linear_of_few_rows(hidden, weight)[1:], alone[1:])


def test_rows_may_be_slices_of_anything() -> None:
    weight, whole = draw(5, 32, dtype=torch.float32), draw(2, 2, 96, dtype=torch.float32)
    for part in (whole[..., 32:64], whole[:, 1:, :32], whole[0, 0, 64:], whole.mT.contiguous().mT[..., :32]):
        found = linear_of_few_rows(part, weight)
        assert found.shape == (*part.shape[:-1], 5)
        torch.testing.assert_close(found, functional.linear(part, weight), atol=1e-4, rtol=1e-4)


def test_torch_computes_many_rows_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = FewRowsLinear(nn.Linear(32, 8).to(DEVICE))
    monkeypatch.setattr(linear, "linear_of_few_rows", None)
    for rows in (0, MAX_ROWS + 1):
        assert ours(torch.ones(1, rows, 32, device=DEVICE)).shape == (1, rows, 8)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        ours(torch.ones(2, 16, device=DEVICE))
    with pytest.raises(RuntimeError, match="dtype"):
        ours(torch.ones(2, 32, device=DEVICE, dtype=torch.float64))


@pytest.mark.parametrize("outputs", [512, 1024, 4096, 6144, 28672, 128256])
@pytest.mark.parametrize("inputs", [1024, 4096, 14336])
def test_every_multiprocessor_has_two_programs(outputs: int, inputs: int) -> None:
    cut = choose_cut(outputs, inputs)
    assert outputs / cut.outputs >= 2 * 128
    assert cut.inputs == 256 * cut.num_warps


@pytest.mark.usefixtures("one_program")
def test_merged_products_and_the_output_layer_are_replaced() -> None:
    model = build_model("llama", DEVICE, torch.float32)
    merge_projections(model)
    assert LinearPass().apply(model) == 2 * 4 + 1
    assert isinstance(model.get_submodule("lm_head"), FewRowsLinear)
    for merged in ("self_attn.q_proj.merged", "self_attn.v_proj.merged", "mlp.up_proj.merged"):
        assert isinstance(model.get_submodule(f"model.layers.1.{merged}.product"), FewRowsLinear)
    assert not any(type(module) is nn.Linear for module in model.modules())


def test_layers_the_kernel_cannot_read_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, strided, small = nn.Linear(24, 8), nn.Linear(32, 32), nn.Linear(32, 4)
    strided.weight.data = strided.weight.data.T
    monkeypatch.setattr(linear, "MIN_OUTPUTS", 8)
    model = nn.ModuleList([narrow, strided, small]).to(DEVICE).requires_grad_(False)
    assert LinearPass().apply(model) == 0


def test_a_kernel_with_other_results_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "linear_of_few_rows", lambda hidden, *_: hidden.new_zeros(len(hidden), 32))
    model = nn.ModuleList([nn.Linear(32, 32)]).to(DEVICE).requires_grad_(False)
    assert LinearPass().apply(model) == 0


@pytest.mark.usefixtures("one_program")
class TestLinearPass(ModulePassTests):
    @pytest.fixture
    def module_pass(self) -> type[ModulePass]:
        return LinearPass

    @pytest.fixture
    def device(self) -> str:
        return DEVICE

    @pytest.fixture(params=[torch.float32] if DEVICE == "cpu" else [torch.float32, *HALVES], ids=str)
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        dtype: torch.dtype = request.param
        return dtype
