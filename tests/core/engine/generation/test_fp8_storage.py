"""Models whose keys and values are kept in other dtypes than their own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DynamicCache

from llmfw.core.base.errors import ComponentError
from llmfw.core.base.request import SamplingParams
from llmfw.core.interfaces.kv_dtype import KV_DTYPES

from ....length import also
from .running import build_engine, generate_alone, random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

SCALES = {0: (0.02, 0.3), 1: (0.7, 0.01), 2: (1.0, 0.05)}
SAMPLING = SamplingParams(temperature=0, max_tokens=24)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with scales in its checkpoint."""
    folder = save_random_model(tmp_path_factory.mktemp("scaled"), *SERVABLE["llama"])
    tensors = load_file(folder / "model.safetensors")
    for index, scales in SCALES.items():
        for which, scale in zip("kv", scales, strict=True):
            tensors[f"model.layers.{index}.self_attn.{which}_scale"] = torch.tensor(scale)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


class RoundedCache(DynamicCache):
    """transformers' own cache, of rounded numbers."""

    def __init__(self, dtype: torch.dtype, scales: dict[int, tuple[float, float]]) -> None:
        super().__init__()
        self._dtype, self._scales_of = dtype, scales

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        largest = torch.finfo(self._dtype).max
        rounded = [
            ((x / scale).clamp(-largest, largest)).to(self._dtype).to(x.dtype) * scale
            for x, scale in zip((key, value), self._scales_of[layer_idx], strict=True)
        ]
        return super().update(rounded[0], rounded[1], layer_idx, *args, **kwargs)


@pytest.mark.parametrize("name", ["fp8_e4m3", *also(["fp8_e5m2"])])
def test_fp8_greedy_text_equals_rounded_transformers(scaled: Path, name: str) -> None:
    """transformers generates over a KV cache rounded to the same dtype."""
    prompts = random_prompts(6, VOCAB_SIZE)
    model = AutoModelForCausalLM.from_pretrained(scaled, dtype=torch.float32).eval()
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        cache = RoundedCache(KV_DTYPES[name], SCALES)
        with torch.no_grad():
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=cache,
                max_new_tokens=24,
                do_sample=False,
            )
        expected.append(whole[0, len(prompt) :].tolist())
    engine = build_engine(scaled, kv_cache_dtype=name, chunked_prefill_size=16)
    assert run(engine, prompts, SAMPLING) == expected
    assert expected != generate_alone(scaled, prompts, 24, eos=1)  # rounding makes a difference here


@pytest.mark.parametrize(
    "family",
    ["deepseek v3 (value heads of another size)", *also(["gemma 2 (soft cap)", "gpt-oss (sinks)"])],
)
def test_caching_and_retraction_do_not_change_tokens(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(8, VOCAB_SIZE)
    engine = build_engine(folder, kv_cache_dtype="fp8_e4m3")
    expected = run(engine, prompts, SAMPLING)
    assert run(engine, prompts, SAMPLING) == expected
    assert engine.stats().num_cached_tokens > 0
    tight = build_engine(
        folder, kv_cache_dtype="fp8_e4m3", max_total_tokens=260, schedule_conservativeness=0.05, page_size=4
    )
    assert run(tight, prompts, SAMPLING, seed=1) == expected
    assert tight.stats().num_retractions > 0


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_kv_cache_accepts_wider_dtypes(scaled: Path, name: str) -> None:
    prompts = random_prompts(4, VOCAB_SIZE)
    engine = build_engine(scaled, kv_cache_dtype=name)
    assert engine.info.kv_cache_dtype == name
    found = run(engine, prompts, SamplingParams(temperature=0, max_tokens=1))
    assert found == generate_alone(scaled, prompts, 1, eos=1)


def test_fp8_holds_four_times_float32_s_tokens(scaled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.core.engine.generation.capacity.total_memory", lambda device: 100 << 20)
    monkeypatch.setattr("llmfw.core.engine.generation.capacity.available_memory", lambda device: 100 << 20)
    settings = {"max_running_requests": 1000, "context_length": 512, "mem_fraction_static": 0.1}
    wide, small = (
        build_engine(scaled, kv_cache_dtype=name, **settings).info.max_total_tokens
        for name in ("auto", "fp8")
    )
    assert 0 <= small - 4 * wide < 4


def test_a_backend_without_fp8_is_skipped_and_logged(scaled: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "llmfw.core.engine.generation.attention_choice"):
        assert build_engine(scaled, kv_cache_dtype="fp8").info.attention == "torch"
    assert "cpu: " in caplog.text
    reason = "cpu: .* not in fp8_e4m3 .--kv-cache-dtype is fp8"
    with pytest.raises(ComponentError, match=reason):
        build_engine(scaled, kv_cache_dtype="fp8", attention="cpu")
