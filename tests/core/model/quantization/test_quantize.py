"""What `--quantization` takes of a model, what it leaves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.model.models import load_model
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear
from llmfw.core.model.quantization.quantize import num_bytes, planned_size, quantize
from llmfw.core.model.quantization.schemes import INT4, INT8, SCHEMES
from llmfw.core.plugin.registry import Registry

from ...engine.generation.tiny_models import SERVABLE, SIZES, save_random_model

CPU = torch.device("cpu")
TAKEN = tuple(
    family for family in SERVABLE if not any(word in family for word in ("mixtral", "moe", "gpt-oss"))
)


def make(family: str, device: str = "cpu", **changes: Any) -> nn.Module:
    config_class, own = SERVABLE[family]
    config = getattr(transformers, config_class)(**SIZES | own | changes)
    torch.manual_seed(2)
    with torch.device(device):
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("tied", [False, True])
def test_layers_and_head_are_quantized(tied: bool) -> None:
    """A tied embedding is quantized with the head."""
    model = make("qwen3", tie_word_embeddings=tied)
    down = model.model.layers[1].mlp.down_proj.weight.clone()
    assert quantize(model, INT4) == 7 * 3 + 1 + tied
    assert model.model.layers[1].mlp.down_proj.quantized.scheme == INT4
    assert (model.model.layers[1].mlp.down_proj.weight - down).norm() < 0.1 * down.norm()
    assert isinstance(model.lm_head, QuantizedLinear)
    assert model.lm_head.quantized.scheme == INT8
    embedding = model.model.embed_tokens
    assert isinstance(embedding, QuantizedEmbedding) == tied
    if tied:
        assert embedding.quantized is model.lm_head.quantized
        ids = torch.tensor([[3, 299]])
        assert torch.equal(embedding(ids), model.lm_head.weight[ids])


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("family", ["llama", "gemma 3", "gpt-neox"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_quantized_size_is_known_without_memory(family: str, tied: bool, scheme: Any) -> None:
    model = make(family, tie_word_embeddings=tied)
    codes, others = planned_size(make(family, "meta", tie_word_embeddings=tied), scheme)
    before = num_bytes(model)
    quantize(model, scheme)
    assert num_bytes(model) == codes + 2 * others < before


@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe", "gpt-oss (sinks)"])
def test_a_model_of_experts_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match="experts of a mixture are not"):
        quantize(make(family), INT8)


def test_quantized_checkpoints_refuse_further_quantization(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"quantized already \(gptq\).*leave out --quantization"):
        load_model(EngineConfig(model=str(folder), quantization="int8"), CPU, Registry([]))


def test_an_unknown_scheme_names_the_choices() -> None:
    with pytest.raises(ConfigError, match="--quantization is 'int3'; it must be one of int8, int4"):
        load_model(EngineConfig(model="nowhere", quantization="int3"), CPU, Registry([]))


def test_embedding_models_refuse_quantization() -> None:
    with pytest.raises(ConfigError, match="--quantization is 'int8'; it has no meaning"):
        EmbeddingEngine.build(EngineConfig(model="nowhere", quantization="int8"), Registry())


@pytest.mark.parametrize("family", TAKEN)
def test_every_family_is_loaded_and_its_bytes_counted(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    plain = load_model(EngineConfig(model=str(folder), dtype="float32"), CPU, Registry([]))
    model = load_model(
        EngineConfig(model=str(folder), dtype="float32", quantization="int8"), CPU, Registry([])
    )
    assert model.layers == plain.layers
    assert model.num_bytes == num_bytes(model.module) < 0.8 * plain.num_bytes
