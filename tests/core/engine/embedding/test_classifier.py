"""Scores equal those of transformers' own class, alone and in batches; what would differ is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError, RequestError
from llmfw.core.base.request import EmbedRequest
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.engine.process.build import build_engine

from ..generation.running import registry
from ..generation.tiny_models import SIZES
from .test_embedding_engine import CLOSE, prompts_of


def save_classifier(folder: Path, config_class: str = "BertConfig", **changes: Any) -> str:
    """Write a random model with a classification head."""
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**(SIZES | {"num_labels": 3} | changes))
    module = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    for parameter in module.parameters():  # so that the scores differ
        parameter.data.normal_(std=0.1)
    module.save_pretrained(folder)
    return str(folder)


def build(folder: str, **settings: Any) -> EmbeddingEngine:
    config = EngineConfig(model=folder, device="cpu", dtype="float32", **settings)
    engine = build_engine(config, registry())
    assert isinstance(engine, EmbeddingEngine)
    return engine


def classify(
    engine: EmbeddingEngine, prompts: list[list[int]], types: list[list[int]] | None = None
) -> torch.Tensor:
    engine.add(EmbedRequest(id="a", prompts=prompts, type_ids=types or []))
    events = []
    while engine.has_work:
        events += engine.step()
    [event] = events
    return torch.frombuffer(bytearray(event.vectors), dtype=torch.float32).view(len(prompts), -1)


def expected(folder: str, prompt: list[int], **inputs: Any) -> torch.Tensor:
    """Return the logits that plain transformers computes of one prompt."""
    module = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return module(input_ids=torch.tensor([prompt]), **inputs).logits[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("config_class", "num_labels"),
    [
        ("BertConfig", 1),
        ("BertConfig", 3),
        ("RobertaConfig", 2),
        ("XLMRobertaConfig", 1),
        ("DistilBertConfig", 2),
        ("ElectraConfig", 1),
        ("ModernBertConfig", 2),
        ("MPNetConfig", 1),
    ],
)
def test_logits_equal_transformers(tmp_path, config_class, num_labels):
    folder = save_classifier(tmp_path, config_class, num_labels=num_labels)
    engine = build(folder)
    assert (engine.info.task, len(engine.info.labels)) == ("classify", num_labels)
    prompts = prompts_of(12)
    found = classify(engine, prompts)
    assert found.std(0).min() > 1e-4
    for logits, prompt in zip(found, prompts, strict=True):
        torch.testing.assert_close(logits, expected(folder, prompt), **CLOSE)


def test_types_tell_the_texts_of_a_pair_apart(tmp_path):
    folder = save_classifier(tmp_path)
    engine, prompts = build(folder), prompts_of(6, longest=20)
    types = [[0] * (len(p) // 2) + [1] * (len(p) - len(p) // 2) for p in prompts]
    found = classify(engine, prompts, types)
    for logits, prompt, kinds in zip(found, prompts, types, strict=True):
        alone = expected(folder, prompt, token_type_ids=torch.tensor([kinds]))
        torch.testing.assert_close(logits, alone, **CLOSE)
    assert not torch.allclose(found, classify(engine, prompts), atol=1e-4)


def test_models_without_types_ignore_them(tmp_path):
    engine = build(save_classifier(tmp_path, "RobertaConfig", type_vocab_size=1))
    torch.testing.assert_close(classify(engine, [[2, 3]], [[0, 1]]), classify(engine, [[2, 3]]), **CLOSE)


@pytest.mark.parametrize(
    ("names", "are_used"), [(["input_ids"], False), (["input_ids", "token_type_ids"], True)]
)
def test_types_count_if_the_tokenizer_gives_them(tmp_path, names, are_used):
    folder = save_classifier(tmp_path, num_labels=1)
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names).save_pretrained(folder)
    [with_types], [without] = (classify(build(folder), [[7, 8, 9]], types) for types in ([[0, 1, 1]], None))
    assert torch.equal(with_types, without) != are_used


@pytest.mark.parametrize("types", [[[0]], [[0, 2]], [[0, -1]], [[0, 0], [0]]])
def test_wrong_types_are_refused(tmp_path, types):
    with pytest.raises(RequestError, match="type_ids"):
        classify(build(save_classifier(tmp_path)), [[2, 3]], types)


@pytest.mark.parametrize(
    ("settings", "activation"),
    [
        ({"num_labels": 1}, "sigmoid"),
        ({"num_labels": 2}, "softmax"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        ({"problem_type": "regression", "num_labels": 1}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
    ],
)
def test_the_config_names_the_activation(tmp_path, settings, activation):
    assert build(save_classifier(tmp_path, **settings)).info.activation == activation


def test_the_labels_are_the_configs(tmp_path):
    names = {0: "no", 1: "yes"}
    folder = save_classifier(tmp_path, num_labels=2, id2label=names, label2id={"no": 0, "yes": 1})
    assert build(folder, task="classify").info.labels == ("no", "yes")


@pytest.mark.parametrize(
    ("config_class", "changes", "reason"),
    [
        ("LlamaConfig", {}, "is a decoder with a classification head"),
        ("BertConfig", {"sbert_ce_default_activation_function": "torch.nn.Tanh"}, "names the activation"),
    ],
)
def test_what_is_not_exact_is_refused(tmp_path, config_class, changes, reason):
    folder = save_classifier(tmp_path, config_class, **changes)
    with pytest.raises(ModelError, match=reason):
        build(folder)


def test_a_head_missing_from_the_files_is_refused(tmp_path):
    folder = save_classifier(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}))
    with pytest.raises(ModelError, match=r"mismatched: classifier\.(weight|bias)"):
        build(folder)


def test_task_classify_needs_a_head(tmp_path):
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="has no classification head"):
        build(str(tmp_path), task="classify")
