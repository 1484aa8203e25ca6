"""A model adapter of a plugin is blamed if its code fails in a step; other requests are not affected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.interfaces.model_adapter import Attend, ModelAdapter
from llmfw.core.plugin.registry import Entry, Registry

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config
from .running import generate, installed

SAMPLING = SamplingParams(temperature=0, max_tokens=12)
BAD = 29  # a prompt of so many tokens is one too many


class Fragile(ModelAdapter):
    """Its layers fail in steps of BAD tokens."""

    model_types = ("gptj",)

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        for module in model.modules():
            if hasattr(module, "_attn"):
                module._attn = fragile(module, attend)


def fragile(module: nn.Module, attend: Attend) -> Any:
    def attn(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> Any:
        if query.shape[2] == BAD:
            raise ZeroDivisionError("no such length")
        return attend(module, query, key, value, mask).transpose(1, 2), None

    return attn


class Forgetful(ModelAdapter):
    """Its layers leave out attention in steps of one token."""

    model_types = ("gptj",)

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        for module in model.modules():
            if hasattr(module, "_attn"):
                module._attn = forgetful(module, attend)


def forgetful(module: nn.Module, attend: Attend) -> Any:
    def attn(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> Any:
        if query.shape[2] == 1:
            return torch.zeros_like(query), None
        return attend(module, query, key, value, mask).transpose(1, 2), None

    return attn


def build(folder: Path, component: type[ModelAdapter] = Fragile) -> Engine:
    path = f"{component.__module__}:{component.__name__}"
    entry = Entry("model_adapter", "fragile", path, "ext", "ext", "1.0")
    others = [each for each in installed() if each.kind != "model_adapter"]
    config = EngineConfig(
        model=str(folder), dtype="float32", device="cpu", max_total_tokens=512, context_length=128
    )
    return build_generation_engine(config, Registry([*others, entry]))


def test_an_adapter_failing_in_steps_is_blamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = build(save_checkpoint(tiny_config("gptj"), tmp_path))
    bad = Request(id="bad", prompt=[5] * BAD, sampling=SAMPLING)
    [outcome] = generate(engine, [bad])
    assert outcome.end.finish_reason == FinishReason.ERROR
    assert outcome.end.error is not None
    assert outcome.end.error.startswith("model adapter 'fragile' of plugin 'ext' failed on this request")
    assert "ZeroDivisionError: no such length" in caplog.text
    [outcome] = generate(engine, [Request(id="good", prompt=[5] * 12, sampling=SAMPLING)])
    assert outcome.end.error is None
    assert outcome.token_ids


def test_layers_that_leave_attention_out_are_blamed(tmp_path: Path) -> None:
    engine = build(save_checkpoint(tiny_config("gptj"), tmp_path), Forgetful)
    [outcome] = generate(engine, [Request(id="a", prompt=[5] * 12, sampling=SAMPLING)])
    assert outcome.end.error is not None
    assert outcome.end.error.startswith("model adapter 'fragile' of plugin 'ext' failed on this request")
    assert len(outcome.token_ids) == 1  # that of the prompt
