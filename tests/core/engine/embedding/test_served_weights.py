"""An encoder whose vectors need a weight that its files lack is refused; heads that are not served may differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from llmfw.core.base.errors import ModelError

from ..generation.tiny_models import SIZES
from .encoders import build, embed, embed_alone, save_encoder

PROMPT = [5, 6, 7, 8, 9]

HEADED = [
    ("BertForMaskedLM", "BertConfig", "bert.encoder.layer.2.attention.output.dense.weight"),
    ("XLMRobertaForMaskedLM", "XLMRobertaConfig", "roberta.embeddings.position_embeddings.weight"),
    ("MPNetForMaskedLM", "MPNetConfig", "mpnet.encoder.relative_attention_bias.weight"),
    ("ModernBertForMaskedLM", "ModernBertConfig", "model.layers.2.mlp.Wi.weight"),
    ("Qwen3ForCausalLM", "Qwen3Config", "model.norm.weight"),
]
"""Models with a head, and a weight that their vectors need."""


def save_headed(folder: Path, model_class: str, config_class: str) -> str:
    """Write an encoder's files, but with the weights of a class that has a head and lacks a pooler."""
    save_encoder(folder, config_class)
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**SIZES)
    getattr(transformers, model_class)(config).save_pretrained(folder)
    return str(folder)


def change(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors; None: leave them out."""
    file = folder / "model.safetensors"
    tensors = load_file(file) | {name: tensor for name, tensor in changes.items() if tensor is not None}
    save_file({n: t for n, t in tensors.items() if changes.get(n, t) is not None}, file)


def configure(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        build(str(folder))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("model_class", "config_class", "needed"), HEADED)
def test_a_checkpoint_may_differ_only_in_heads(
    model_class: str, config_class: str, needed: str, tmp_path: Path
) -> None:
    folder = save_headed(tmp_path, model_class, config_class)
    expected = embed_alone(folder, PROMPT, "mean_tokens")
    assert torch.allclose(embed(build(folder), [PROMPT])[0], expected, atol=1e-5)
    change(tmp_path, **{needed: None})
    assert f"missing: {needed.partition('.')[2]}" in refusal(tmp_path)


@pytest.mark.parametrize("count", [2, 4])
def test_layers_may_not_differ(count: int, tmp_path: Path) -> None:
    save_headed(tmp_path, "BertForMaskedLM", "BertConfig")
    configure(tmp_path, num_hidden_layers=count)
    assert f"the config has {count} layers, the files 3" in refusal(tmp_path)


def test_shapes_may_not_differ(tmp_path: Path) -> None:
    save_encoder(tmp_path)
    configure(tmp_path, intermediate_size=80)
    assert "encoder.layer.0.intermediate.dense.weight is [96, 64], the config says [80, 64]" in refusal(
        tmp_path
    )


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path)
    name = "encoder.layer.0.intermediate.dense.weight"
    change(tmp_path, **{name: torch.ones(96, 64, dtype=torch.int8)})
    assert f"{name} is stored as I8" in refusal(tmp_path)


def test_adapters_and_unknown_quantization_are_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path)
    configure(tmp_path, quantization_config={"quant_method": "exl3"})
    assert "quantized by quant_method 'exl3'" in refusal(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "has an adapter (adapter_config.json)" in refusal(tmp_path)
