"""Whole decoders of native code say what transformers' say."""

from __future__ import annotations

import importlib.resources
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.model.attention.hf_attention import IMPLEMENTATION, register_with_transformers
from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.model.probe.probe import probe
from llmfw.core.model.trial.packed import run_in_one_row
from llmfw.core.testing.module_pass import ModulePassTests, assert_close
from llmfw.plugins.cpu_native.decoder import NativeDecoder
from llmfw.plugins.cpu_native.layers import NativePass
from llmfw.plugins.cpu_native.library import load_library, why_not
from llmfw.plugins.cpu_native.weights import NativeLinear

from ...core.engine.generation.running import build_engine, generate_alone, random_prompts, run
from ...core.engine.generation.tiny_models import SERVABLE, SIZES, VOCAB_SIZE, save_random_model
from ...length import also

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

DEMO = importlib.resources.files("llmfw.plugins.model_demo") / "weights"
FAMILIES = ("llama", "mistral with a sliding window", "qwen2", "qwen3")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: SERVABLE[family] for family in FAMILIES},
    "tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "biases everywhere": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "uneven widths": (
        "Qwen3Config",
        {"hidden_size": 50, "intermediate_size": 37, "head_dim": 10, "vocab_size": 77},
    ),
    "scaled rotary embedding": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "rotary embedding that depends on the length": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "rows a power of two apart": ("LlamaConfig", {"hidden_size": 512, "num_hidden_layers": 1}),
}
TOLERANCES = {torch.float32: 3e-5, torch.bfloat16: 5e-2}
LENGTHS = ([1], [3], [1, 1, 2], [1] * 16, [30, 1, 70])


class TestNativePass(ModulePassTests):
    @pytest.fixture
    def module_pass(self) -> type[NativePass]:
        return NativePass


def make(variant: str, dtype: torch.dtype, *, merged: bool = True) -> nn.Module:
    register_with_transformers()
    config_class, changes = (VARIANTS | SERVABLE)[variant]
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**SIZES | changes)
    model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(0.15 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    model = model.to(dtype).eval().requires_grad_(False)
    if merged:
        merge_projections(model)
    return model


def logits(model: nn.Module, lengths: list[int]) -> torch.Tensor:
    size = model.config.vocab_size
    return run_in_one_row(model, [[(5 * i + 7 * n) % size for i in range(n)] for n in lengths])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_native_decoders_equal_transformers(variant: str, dtype: torch.dtype) -> None:
    model = make(variant, dtype)
    expected = [logits(model, lengths) for lengths in LENGTHS]
    specs = probe(model, model.config.num_hidden_layers, model.config.vocab_size)
    num_changed = 7 * model.config.num_hidden_layers + 2 + (variant == "tied")
    assert NativePass().apply(model) == num_changed
    assert type(model.model) is NativeDecoder
    assert type(model.lm_head) is NativeLinear
    for lengths, before in zip(LENGTHS, expected, strict=True):
        assert_close(logits(model, lengths), before, TOLERANCES[dtype])
    assert probe(model, model.config.num_hidden_layers, model.config.vocab_size, may_lack_masks=True) == specs


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_token_s_bits_ignore_its_neighbors(dtype: torch.dtype) -> None:
    model = make("qwen3", dtype)
    NativePass().apply(model)
    alone = logits(model, [5])
    assert torch.equal(logits(model, [5, 1, 9, 30])[:5], alone)


def test_two_threads_give_the_same_bits() -> None:
    model = make("rows a power of two apart", torch.bfloat16)
    NativePass().apply(model)
    many = [*LENGTHS, [400]]  # from 400 tokens on, a call of this model is so much work that threads share it
    one = [logits(model, lengths) for lengths in many]
    load_library(torch.bfloat16).llmfw_set_threads(2)
    two = [logits(model, lengths) for lengths in many]
    load_library(torch.bfloat16).llmfw_set_threads(torch.get_num_threads())
    assert all(map(torch.equal, one, two))


def test_freed_original_weights_can_still_be_read() -> None:
    model = make("tied", torch.float32)
    layer = model.model.layers[0]
    down, key = layer.mlp.down_proj.weight.clone(), layer.self_attn.k_proj.weight.clone()
    head = model.lm_head.weight.clone()
    NativePass().apply(model)
    layer = model.model.layers[0]
    assert torch.equal(layer.mlp.down_proj.weight, down)
    assert torch.equal(layer.self_attn.k_proj.weight, key)
    assert torch.equal(model.lm_head.weight, head)
    assert torch.equal(model.model.embed_tokens.weight, head)
    assert [name for name, p in model.named_parameters() if p.dim() > 1] == []


def test_the_original_layers_are_gone() -> None:
    model = make("tied", torch.bfloat16)
    kept = [weakref.ref(each) for each in (model.model.layers[0].mlp.down_proj, model.lm_head)]
    NativePass().apply(model)
    assert [each() for each in kept] == [None, None]


@pytest.mark.parametrize("part", ["layers.1.mlp.down_proj", "layers.1", "layers.0.self_attn", "norm"])
def test_one_unusual_module_disables_the_native_decoder(part: str) -> None:
    model = make("llama", torch.float32)
    model.model.get_submodule(part).register_forward_hook(lambda module, given, output: output)
    assert NativePass().apply(model) == 0


def test_caches_and_batches_are_refused() -> None:
    model = make("llama", torch.float32)
    NativePass().apply(model)
    ids = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="one packed row"):
        model.model(ids, position_ids=ids, llmfw_step=None)
    with pytest.raises(ValueError, match="keeps no cache"):
        model.model(ids[:1], position_ids=ids[:1], use_cache=True, llmfw_step=None)


@pytest.mark.parametrize(
    ("device", "dtype", "reason"),
    [
        ("cuda:0", torch.bfloat16, "it is for cpu"),
        ("cpu", torch.float16, "not in float16"),
        ("cpu", torch.float32, None),
    ],
)
def test_it_supports_cpus_in_float32_and_bfloat16(
    device: str, dtype: torch.dtype, reason: str | None
) -> None:
    found = NativePass.unsupported(device, dtype)
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize("family", [*FAMILIES[:1], *also(FAMILIES[1:])])
def test_the_engine_s_greedy_tokens_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(8, VOCAB_SIZE)
    expected = generate_alone(folder, prompts, 24, eos=1)
    for attention in ("cpu", "torch"):
        settings = {"attention": attention, "chunked_prefill_size": 16, "max_total_tokens": 260}
        engine = build_engine(folder, module_passes="cpu-native", **settings)
        assert engine.info.module_passes == ("cpu-native",)
        assert run(engine, prompts, seed=1) == expected, attention


def test_the_demo_uses_it_by_default() -> None:
    assert build_engine(str(DEMO)).info.module_passes == ("cpu-native",)
    assert build_engine(str(DEMO), module_passes="none").info.module_passes == ()
