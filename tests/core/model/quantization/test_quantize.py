"""What `--quantization` takes of a model, what it leaves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.interfaces.quantization_scheme import LinearLayer, QuantizationScheme
from llmfw.core.model.models import load_model
from llmfw.core.model.quantization.code_format import INT4, INT8
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear, num_bytes
from llmfw.core.model.quantization.quantize import planned_size, quantize
from llmfw.core.plugin.registry import Registry

from ....doubles.six_bit_scheme import SixBit, SixBitEmbedding, SixBitLinear
from ...engine.generation.tiny_models import SERVABLE, SIZES, save_random_model
from .schemes import BUNDLED, bundled, chosen, entry

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
    assert quantize(model, chosen("int4")).num_modules == 7 * 3 + 1 + tied
    assert model.model.layers[1].mlp.down_proj.quantized.code_format == INT4
    assert (model.model.layers[1].mlp.down_proj.weight - down).norm() < 0.1 * down.norm()
    assert isinstance(model.lm_head, QuantizedLinear)
    assert model.lm_head.quantized.code_format == INT8
    embedding = model.model.embed_tokens
    assert isinstance(embedding, QuantizedEmbedding) == tied
    if tied:
        assert embedding.quantized is model.lm_head.quantized
        ids = torch.tensor([[3, 299]])
        assert torch.equal(embedding(ids), model.lm_head.weight[ids])


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("family", ["llama", "gemma 3", "gpt-neox"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_quantized_size_is_known_without_memory(family: str, tied: bool, name: str) -> None:
    model = make(family, tie_word_embeddings=tied)
    codes, others = planned_size(make(family, "meta", tie_word_embeddings=tied), chosen(name))
    before = num_bytes(model)
    assert quantize(model, chosen(name)).num_bytes == codes
    assert num_bytes(model) == codes + 2 * others < before


@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe", "gpt-oss (sinks)"])
def test_a_model_of_experts_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match="experts of a mixture are not"):
        quantize(make(family), chosen("int8"))


def test_quantized_checkpoints_refuse_further_quantization(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"quantized already \(gptq\).*leave out --quantization"):
        load_model(EngineConfig(model=str(folder), quantization="int8"), CPU, Registry(bundled()))


def test_an_unknown_scheme_names_the_choices() -> None:
    with pytest.raises(ConfigError, match="unknown quantization scheme 'int3'; known: int4, int8"):
        load_model(EngineConfig(model="nowhere", quantization="int3"), CPU, Registry(bundled()))


def test_options_without_a_scheme_are_refused() -> None:
    config = EngineConfig(model="nowhere", options={"quantization_scheme.group": "8"})
    with pytest.raises(ConfigError, match="'group' is given, but no scheme is chosen; --quantization NAME"):
        load_model(config, CPU, Registry(bundled()))


def test_layers_that_a_scheme_leaves_out_stay() -> None:
    model, expected = make("llama"), make("llama")
    scheme = chosen(SixBit, skip="down_proj")
    codes, others = planned_size(make("llama", "meta"), scheme)
    assert quantize(model, scheme).num_bytes == codes
    assert others == sum(parameter.numel() for parameter in model.parameters())
    layer = model.model.layers[0].mlp
    assert torch.equal(layer.down_proj.weight, expected.model.layers[0].mlp.down_proj.weight)
    assert isinstance(layer.up_proj, SixBitLinear)


def test_a_scheme_that_takes_few_weights_is_refused() -> None:
    with pytest.raises(ModelError, match=r"by --quantization SixBit: only .*% of its weights"):
        quantize(make("llama"), chosen(SixBit, skip="mlp"))


class Untied(SixBit):
    embedding = QuantizationScheme.embedding


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_needs_an_embedding_layer(tied: bool) -> None:
    """A scheme without one leaves such a head as it is; its bytes are counted once."""
    model = make("llama", tie_word_embeddings=tied)
    codes, others = planned_size(make("llama", "meta", tie_word_embeddings=tied), chosen(Untied))
    assert quantize(model, chosen(Untied)).num_bytes == codes
    assert isinstance(model.lm_head, nn.Linear) == tied
    assert others == sum(parameter.numel() for parameter in model.parameters())
    model = make("llama", tie_word_embeddings=tied)
    quantize(model, chosen(SixBit))
    assert isinstance(model.model.embed_tokens, SixBitEmbedding) == tied


class Listing(SixBit):
    """Writes down what it is told."""

    seen: ClassVar[list[LinearLayer]] = []

    def num_bytes(self, layer: LinearLayer) -> int | None:
        self.seen.append(layer)
        return super().num_bytes(layer)


def test_layers_are_described_to_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listing, "seen", [])
    quantize(make("llama"), chosen(Listing))
    known = {layer.name: layer for layer in Listing.seen}
    down = LinearLayer("model.layers.2.mlp.down_proj", 64, 96, torch.bfloat16)
    assert known["model.layers.2.mlp.down_proj"] == down
    assert [name for name, layer in known.items() if layer.is_head] == ["lm_head"]
    assert len(known) == 7 * 3 + 1


def test_the_planned_dtype_is_the_served_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listing, "seen", [])
    planned_size(make("llama", "meta"), chosen(Listing), torch.float32)
    assert {layer.dtype for layer in Listing.seen} == {torch.float32}


def test_an_unsupported_dtype_is_refused_early(tmp_path: Path) -> None:
    """Before the weights are read: the folder has none."""
    config = getattr(transformers, SERVABLE["llama"][0])(**SIZES)
    config.save_pretrained(tmp_path)
    settings = EngineConfig(model=str(tmp_path), dtype="float16", quantization="SixBit")
    with pytest.raises(
        ConfigError, match=r"'SixBit' of plugin 'ext'.* cannot be used: it is for float32 and"
    ):
        load_model(settings, CPU, Registry([entry(SixBit)]))


@pytest.mark.parametrize("family", TAKEN)
def test_every_family_is_loaded_and_its_bytes_counted(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    plain = load_model(EngineConfig(model=str(folder), dtype="float32"), CPU, Registry([]))
    model = load_model(
        EngineConfig(model=str(folder), dtype="float32", quantization="int8"), CPU, Registry(bundled())
    )
    assert model.layers == plain.layers
    assert model.num_bytes == num_bytes(model.module) < 0.8 * plain.num_bytes
