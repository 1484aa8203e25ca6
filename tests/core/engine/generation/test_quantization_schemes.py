"""A scheme of a plugin serves a model: as exactly as its weights are, with its memory counted, and blamed for its faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.interfaces.quantization_scheme import LinearLayer
from llmfw.core.model.models import load_model
from llmfw.core.plugin.registry import Registry

from ....doubles.six_bit_scheme import SixBit, dequantized
from ...model.quantization.schemes import entry
from .running import generate, random_prompts, registry
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

SAMPLING = SamplingParams(temperature=0, max_tokens=12)
BAD = 29  # a prompt of so many tokens is one too many


class Fragile(SixBit):
    """Its modules fail in steps of BAD tokens."""

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        return FragileLinear(super().quantize(layer, weight, bias))


class FragileLinear(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> Any:
        if hidden.shape[-2] == BAD:
            raise ZeroDivisionError("no such shape")
        return self.inner(hidden)


def components() -> Registry:
    return registry(entry(SixBit, "six"), entry(Fragile, "fragile"))


def build(folder: Path, **settings: Any) -> Engine:
    config: dict[str, Any] = {
        "model": str(folder),
        "device": "cpu",
        "dtype": "float32",
        "context_length": 256,
    }
    return build_generation_engine(EngineConfig(**config | {"grammar": "trie"} | settings), components())


def reference(folder: Path, tokens: list[int]) -> torch.Tensor:
    """Return log probabilities [T, vocab] by transformers in float64, with dequantized weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    linears = {id(module.weight): module.weight for module in model.modules() if type(module) is nn.Linear}
    with torch.no_grad():
        for weight in linears.values():  # a tied weight is there once
            weight.copy_(dequantized(weight.float()))
        return model(torch.tensor([tokens])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("tied", [False, True])
def test_a_foreign_scheme_serves_exactly_its_weights(tied: bool, tmp_path: Path) -> None:
    config_class, changes = SERVABLE["qwen2"]  # has biases
    folder = save_random_model(tmp_path, config_class, changes | {"tie_word_embeddings": tied})
    engine = build(folder, quantization="ext/six")
    assert engine.info.quantization == "ext/six"
    prompts = random_prompts(4, VOCAB_SIZE)
    requests = [
        Request(id=str(i), prompt=prompt, sampling=SAMPLING, logprobs=1) for i, prompt in enumerate(prompts)
    ]
    for prompt, outcome in zip(prompts, generate(engine, requests, seed=1), strict=True):
        expected = reference(folder, prompt + outcome.token_ids)[len(prompt) - 1 : -1]
        for token, record, row in zip(outcome.token_ids, outcome.logprobs, expected, strict=True):
            assert token == row.argmax()
            assert record.logprob == pytest.approx(float(row[token]), abs=1e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_a_foreign_scheme_s_memory_is_counted(tied: bool, tmp_path: Path) -> None:
    config_class, changes = SERVABLE["llama"]
    folder = save_random_model(tmp_path, config_class, changes | {"tie_word_embeddings": tied})

    def load(**settings: Any) -> int:
        config = EngineConfig(model=str(folder), dtype="float32", **settings)
        return load_model(config, torch.device("cpu"), components()).num_bytes

    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    layers = [module.weight for module in plain.modules() if type(module) is nn.Linear]
    replaced = sum(weight.nbytes for weight in layers)
    kept = sum(parameter.nbytes for parameter in plain.parameters()) - replaced
    assert load() == kept + replaced
    for group in (32, 16):
        found = load(quantization="six", options={"quantization_scheme.group": group})
        assert found == kept + sum(weight.numel() * 6 // 8 + weight.numel() // group * 4 for weight in layers)


def test_a_module_failing_in_steps_is_blamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = build(save_random_model(tmp_path, *SERVABLE["llama"]), quantization="fragile")
    bad = Request(id="bad", prompt=[5] * BAD, sampling=SAMPLING)
    [outcome] = generate(engine, [bad])
    assert outcome.end.finish_reason == FinishReason.ERROR
    assert outcome.end.error is not None
    assert outcome.end.error.startswith(
        "quantization scheme 'fragile' of plugin 'ext' failed on this request"
    )
    assert "ZeroDivisionError: no such shape" in caplog.text
    [outcome] = generate(engine, [Request(id="good", prompt=[5] * 12, sampling=SAMPLING)])
    assert len(outcome.token_ids) == 12
