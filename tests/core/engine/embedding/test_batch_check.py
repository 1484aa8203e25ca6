"""A model whose outputs for a text depend on the other texts of a batch is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertConfig, BertModel

from llmfw.core.base.errors import ModelError
from llmfw.core.engine.embedding.batch_check import check_batches, check_long_texts

from .encoders import build, embed, embed_alone, save_encoder
from .test_classifier import build as build_classifier
from .test_classifier import save_classifier

ORIGINAL, LONGEST = 64, 256
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
LONG: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    "original_max_position_embeddings": ORIGINAL,
}
LAYERED: dict[str, Any] = {
    "rope_parameters": {"full_attention": LONG, "sliding_attention": PLAIN},
    "max_position_embeddings": LONGEST,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "global_attn_every_n_layers": 2,
    "initializer_range": 0.5,  # so that attention matters in a random model
    **{f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "cls", "sep")},
}
TOP: dict[str, Any] = {"rope_parameters": LONG, "max_position_embeddings": LONGEST}
KINDS = {"of a kind of layers": ("ModernBertConfig", LAYERED), "at the top": ("LlamaConfig", TOP)}


def test_frequencies_by_the_longest_text_are_refused(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path, "ModernBertConfig", **copy.deepcopy(LAYERED))
    with pytest.raises(ModelError, match="depend on the longest text of a batch, up to 256 tokens"):
        build(folder)


def test_a_classifier_with_such_frequencies_is_refused(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "ModernBertConfig", **copy.deepcopy(LAYERED))
    with pytest.raises(ModelError, match="depend on the longest text of a batch, up to 256 tokens"):
        build_classifier(folder, task="classify")


@pytest.mark.parametrize("kind", KINDS)
def test_up_to_the_original_length_vectors_are_right(tmp_path: Path, kind: str) -> None:
    config_class, fields = KINDS[kind]
    folder = save_encoder(tmp_path, config_class, **copy.deepcopy(fields))
    short, long = [5, 3, 4], [7] * ORIGINAL
    vectors = embed(build(folder, context_length=ORIGINAL), [short, long])
    for vector, prompt in zip(vectors, (short, long), strict=True):
        torch.testing.assert_close(vector, embed_alone(folder, prompt, "mean_tokens"), atol=1e-5, rtol=1e-4)


def tiny_bert(**changes: Any) -> BertModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    module: BertModel = AutoModel.from_config(BertConfig(vocab_size=16, **sizes, **changes)).eval()
    return module


def test_a_model_that_ignores_the_mask_is_refused() -> None:
    module = tiny_bert()

    def encode(texts: Any) -> list[torch.Tensor]:
        ids = torch.tensor([[*text, *[0] * (8 - len(text))][: max(map(len, texts))] for text in texts])
        return list(module(input_ids=ids).last_hidden_state.detach().mean(1))

    with pytest.raises(ModelError, match="a text's outputs depend on the other texts of its batch"):
        check_batches(module, encode)


def test_positions_that_a_model_ignores_are_refused() -> None:
    module = tiny_bert()
    nn.init.zeros_(module.embeddings.position_embeddings.weight)
    module.config.rope_parameters = LONG
    with pytest.raises(ModelError, match="it ignores the positions of tokens"):
        check_long_texts(module, LONGEST)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_layers_for_multiples_of_a_length_are_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(ModelError, match=f"must be a multiple|multiple of the chunk size {size}"):
        build(save_encoder(tmp_path, chunk_size_feed_forward=size))
