"""Whole models with the passes: by Triton's interpreter where TRITON_INTERPRET=1, else on a GPU.

Run by test_interpreted_kernels.py and, on a GPU, by test_fused_triton.py.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama

from llmfw.core.base.request import SamplingParams
from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.testing.module_pass import LARGE, ModulePassTests, assert_close
from llmfw.core.testing.module_pass_models import build_model, logits_of
from llmfw.plugins.fused_triton.norms import FusedLayer, FusedNorm, NormPass
from llmfw.plugins.fused_triton.rotary import RotaryPass
from llmfw.plugins.fused_triton.swiglu import SwigluPass

from ...core.engine.generation.running import build_engine, run
from ...core.engine.generation.tiny_models import save_random_model
from ...length import of_length

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
DTYPES = [torch.float32] if DEVICE == "cpu" else [torch.float32, torch.bfloat16, torch.float16]
PASSES = (NormPass, SwigluPass, RotaryPass)
FUSED = {
    "llama": {"FusedNorm": 5, "FusedLayer": 2, "FusedSwiglu": 2, "FusedAttention": 2},
    "mistral": {"FusedNorm": 5, "FusedLayer": 2, "FusedSwiglu": 2, "FusedAttention": 2},
    "qwen2": {"FusedNorm": 5, "FusedLayer": 2, "FusedSwiglu": 2, "FusedAttention": 2},
    "qwen3": {"FusedNorm": 9, "FusedLayer": 2, "FusedSwiglu": 2, "FusedAttention": 2},
    "mixtral": {"FusedNorm": 5, "FusedLayer": 2, "FusedAttention": 2},
    "llama, other activation": {"FusedNorm": 5, "FusedLayer": 2, "FusedAttention": 2},
    "gemma2": {"FusedNorm": 9},
    "gemma3": {"FusedNorm": 13},
    "phi3": {"FusedNorm": 5},
}


class AllPasses(ModulePass):
    """The three passes by rank, as they are applied unless it is said otherwise."""

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        return NormPass.unsupported(device, dtype)

    def apply(self, model: nn.Module) -> int:
        return sum(kind().apply(model) for kind in PASSES)


class TestAllPasses(ModulePassTests):
    @pytest.fixture
    def module_pass(self) -> type[ModulePass]:
        return AllPasses

    @pytest.fixture
    def device(self) -> str:
        return DEVICE

    @pytest.fixture(params=DTYPES, ids=str)
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        dtype: torch.dtype = request.param
        return dtype

    @pytest.fixture
    def large_step(self) -> Sequence[int]:
        """Return what the interpreter computes in a second: it takes 30 ms for a token."""
        return [20, 1, 2] if DEVICE == "cpu" else LARGE


@pytest.mark.parametrize("family", FUSED)
def test_known_modules_are_replaced(family: str) -> None:
    model = build_model(family, DEVICE, torch.float32)
    count = AllPasses().apply(model)
    kinds = Counter(type(module).__name__ for module in model.modules())
    assert {kind: number for kind, number in kinds.items() if kind.startswith("Fused")} == FUSED[family]
    assert count == sum(FUSED[family].values())


@pytest.mark.parametrize("name", ["LlamaRMSNorm", "LlamaMLP", "LlamaAttention", "LlamaDecoderLayer"])
def test_modified_known_classes_are_left_unchanged(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind = getattr(modeling_llama, name)
    ordinary = kind.forward

    def unusual(*args: Any, **kwargs: Any) -> Any:
        output = ordinary(*args, **kwargs)
        return (output[0] * 1.02, *output[1:]) if isinstance(output, tuple) else output * 1.02

    monkeypatch.setattr(kind, "forward", unusual)
    model = build_model("llama", DEVICE, torch.float32)
    expected = logits_of(model, [3, 1])
    AllPasses().apply(model)
    assert any(type(module) is kind for module in model.modules())
    assert_close(logits_of(model, [3, 1]), expected, 1e-5)


@pytest.mark.parametrize("kinds", [(kind,) for kind in PASSES] + [PASSES[::-1]], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_each_pass_works_alone_and_reordered(family: str, kinds: tuple[type[ModulePass], ...]) -> None:
    model = build_model(family, DEVICE, torch.float32)
    merge_projections(model)
    expected = logits_of(model, [3, 1])
    assert all(kind().apply(model) > 0 for kind in kinds)
    assert_close(logits_of(model, [3, 1]), expected, 1e-5)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_float16_logits_differ_by_rounding_only(family: str) -> None:
    model = build_model(family, DEVICE, torch.float16)
    merge_projections(model)
    expected = logits_of(model, [3, 1])
    AllPasses().apply(model)
    assert_close(logits_of(model, [3, 1]), expected, 2e-3)


@pytest.mark.parametrize("config_class", ["LlamaConfig", pytest.param("Qwen3Config", marks=pytest.mark.long)])
def test_passes_do_not_change_the_engine_s_tokens(tmp_path: Path, config_class: str) -> None:
    save_random_model(tmp_path, config_class, {"num_hidden_layers": 2})
    prompts = [[5, 6, 7, 8, 9], [10], [5, 6, 7]][: of_length(1, 3)]
    plain, fused = (
        build_engine(tmp_path, module_passes=names, device=DEVICE)
        for names in ("none", "triton-rope,triton-norm,triton-swiglu")
    )
    assert fused.info.module_passes == ("triton-norm", "triton-swiglu", "triton-rope")
    greedy = SamplingParams(temperature=0, max_tokens=of_length(2, 4))
    assert run(fused, prompts, greedy, eos=()) == run(plain, prompts, greedy, eos=())


def test_every_norm_except_the_first_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("llama", DEVICE, torch.float32)
    NormPass().apply(model)
    alone: list[int] = []
    monkeypatch.setattr(
        "llmfw.plugins.fused_triton.norms.rms_norm",
        lambda hidden, *rest: alone.append(1) or torch.zeros_like(hidden),
    )
    logits_of(model, [3])
    assert len(alone) == 1


def test_a_fused_norm_serves_its_tensor_once() -> None:
    model = build_model("llama", DEVICE, torch.float32)
    NormPass().apply(model)
    norm = model.get_submodule("model.norm")
    assert isinstance(norm, FusedNorm)
    a, b = torch.randn(2, 3, 48, device=DEVICE)
    total = norm.add(a, b)
    other = norm(a)
    torch.testing.assert_close(norm(total), norm(a + b))
    total = norm.add(a, b)
    first = norm(total)
    assert norm(total) is not first
    assert not torch.equal(other, first)
    assert norm._total is norm._normed is None


def test_the_last_layer_references_the_final_norm() -> None:
    """It does not own it, so names of weights stay the same."""
    model = build_model("llama", DEVICE, torch.float32)
    names = set(model.state_dict())
    NormPass().apply(model)
    layer = model.get_submodule("model.layers.1")
    assert isinstance(layer, FusedLayer)
    assert layer._following == (model.get_submodule("model.norm"),)
    assert set(model.state_dict()) == names


@pytest.mark.skipif(DEVICE != "cpu", reason="is about the interpreter")
def test_the_interpreter_is_not_trusted_with_bfloat16() -> None:
    assert "bfloat16" in str(NormPass.unsupported("cpu", torch.bfloat16))
    assert "not tested with float64" in str(NormPass.unsupported(DEVICE, torch.float64))
