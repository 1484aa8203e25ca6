"""A model of a GGUF file is the model that the file was written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.weights.weight_choice import choose_weights
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.registry import Entry, Registry

from ...length import also_each

pytest.importorskip("gguf")

from llmfw.plugins.weights_gguf import gguf_loader
from llmfw.plugins.weights_gguf.convert_metadata import write_described

from ...doubles.gguf_file import VOCAB_SIZE, reads_vocabularies, tiny_model, write_gguf

PATH = "llmfw.plugins.weights_gguf.gguf_loader:GGUFLoader"
REGISTRY = Registry([Entry("weight_loader", "gguf", PATH, "weights_gguf", "llmfw-engine", "1", rank=80)])
WINDOW = {"sliding_window": 24}
GEMMA = WINDOW | {"query_pre_attn_scalar": 64, "tie_word_embeddings": True}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "phi3": WINDOW,
    "gemma2": GEMMA | {"attn_logit_softcapping": 20.0},
    "gemma3_text": GEMMA,
    "mixtral": ROPE | {"num_local_experts": 3, "num_experts_per_tok": 2},
    "qwen3_moe": ROPE
    | {
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
        "norm_topk_prob": True,
        "tie_word_embeddings": True,
    },
}


def loaded(file: Path) -> Any:
    """Return transformers' model with the weights that llmfw reads, in float32."""
    folder = resolve_model(str(file), REGISTRY).path
    source = choose_weights(EngineConfig(model=folder), REGISTRY)
    assert source is not None
    config = AutoConfig.from_pretrained(folder)
    return source.load(AutoModelForCausalLM, config, lambda stored: None, dtype=torch.float32).module.eval()


@pytest.fixture(autouse=True)
def _converted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert in this process, which has imported torch already; `test_described_files` uses a child process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_loader, "convert", write_described)


@reads_vocabularies
@pytest.mark.parametrize(
    ("model_type", "kind"),
    [
        *[("llama", "Q4_K"), ("gemma2", "Q8_0"), ("mixtral", "Q8_0"), ("qwen3_moe", "IQ4_XS")],
        *also_each(
            *[(each, "F16") for each in KINDS],
            *[("llama", kind) for kind in ("F32", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q3_K", "Q2_K")],
            *[("llama", kind) for kind in ("Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS", "IQ3_S")],
            *[("llama", kind) for kind in ("IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")],
        ),
    ],
)
def test_logits_are_those_of_the_written_model(tmp_path: Path, model_type: str, kind: str) -> None:
    """To the last bit: the weights are equal, and so is the config."""
    model = tiny_model(model_type, **KINDS[model_type])
    write_gguf(tmp_path / "m.gguf", model, kind)
    tokens = torch.arange(1, 61)[None] * 7 % VOCAB_SIZE
    with torch.inference_mode():
        assert torch.equal(loaded(tmp_path / "m.gguf")(tokens).logits, model(tokens).logits)
