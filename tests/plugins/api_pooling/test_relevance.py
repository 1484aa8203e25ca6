"""/rerank, /score and /classify by a cross-encoder, by embeddings and by log probabilities; the reply says which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.registry import Registry

from ...core.engine.generation.tiny_models import SIZES
from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

PACKAGE = "llmfw.plugins.api_pooling"
ROUTES = [("api_pooling", f"{PACKAGE}.{name}") for name in ("similarity:Similarity", "classes:classify")]
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "feline", "copper", "price", "of")
DOCUMENTS = ["price of copper", "a feline", "a cat", "copper cat of a price"]


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Write a tokenizer of words, with BERT's template for pairs."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_classifier(folder: Path, num_labels: int) -> None:
    torch.manual_seed(1)
    labels = {index: f"label-{index}" for index in range(num_labels)}
    config = transformers.BertConfig(
        **SIZES, num_labels=num_labels, id2label=labels, label2id={v: k for k, v in labels.items()}
    )
    module = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    for parameter in module.parameters():
        parameter.data.normal_(std=0.1)
    module.save_pretrained(folder)


@pytest.fixture(scope="module", params=[1, 3])
def classifier(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path, int]]:
    folder = tmp_path_factory.mktemp("classifier")
    save_classifier(folder, request.param)
    save_tokenizer(folder)
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32")
    engine = EmbeddingEngine.build(config, Registry(), classifies=True)
    with serving(engine, load_tokenizer(str(folder)), plugin_routes=ROUTES) as served:
        yield served, folder, request.param


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("m")), plugin_routes=ROUTES) as served:
        yield served


@pytest.fixture(scope="module")
def one(classifier: tuple[Served, Path, int]) -> tuple[Served, Path]:
    served, folder, num_labels = classifier
    if num_labels != 1:
        pytest.skip("a cross-encoder has one label")
    return served, folder


def expected(folder: Path, *texts: Any) -> torch.Tensor:
    """Return the logits of plain transformers, with its own tokenizer."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    module = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        inputs = tokenizer(*texts, return_tensors="pt", padding=True)
        return module(**inputs).logits


def ask(served: Served, path: str, **body: Any) -> Any:
    reply = served.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_a_cross_encoder_ranks_as_transformers(one: tuple[Served, Path], path: str) -> None:
    served, folder = one
    reply = ask(served, path, model=SERVED_NAME, query="a cat", documents=DOCUMENTS)
    scores = expected(folder, ["a cat"] * 4, DOCUMENTS)[:, 0].sigmoid()
    assert reply["method"] == "cross-encoder"
    assert [each["index"] for each in reply["results"]] == scores.argsort(descending=True).tolist()
    for each in reply["results"]:
        assert each["relevance_score"] == pytest.approx(float(scores[each["index"]]), abs=1e-5)


def test_a_cross_encoder_scores_pairs(one: tuple[Served, Path]) -> None:
    served, folder = one
    reply = ask(served, "/v1/score", text_1=DOCUMENTS, text_2=DOCUMENTS[::-1], use_activation=False)
    logits = expected(folder, DOCUMENTS, DOCUMENTS[::-1])[:, 0]
    assert [each["score"] for each in reply["data"]] == pytest.approx(logits.tolist(), abs=1e-5)


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_classes_equal_transformers(classifier: tuple[Served, Path, int], path: str) -> None:
    served, folder, num_labels = classifier
    reply = ask(served, path, input=DOCUMENTS)
    logits = expected(folder, DOCUMENTS)
    probs = logits.sigmoid() if num_labels == 1 else logits.softmax(1)
    assert reply["method"] == "classification-head"
    for each, row in zip(reply["data"], probs, strict=True):
        assert each["probs"] == pytest.approx(row.tolist(), abs=1e-5)
        assert each["label"] == f"label-{int(row.argmax())}"


def test_several_labels_do_not_rank(classifier: tuple[Served, Path, int]) -> None:
    served, _, num_labels = classifier
    reply = served.post("/rerank", {"query": "a", "documents": ["cat"]})
    assert reply.status_code == (200 if num_labels == 1 else 400)


def test_wrong_documents_are_named(one: tuple[Served, Path]) -> None:
    served, _ = one
    for documents in (["a", ""], ["a", "cat " * 600]):
        reply = served.post("/rerank", {"query": "a", "documents": documents})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "documents[1]"), reply.text


def test_other_models_are_not_found(one: tuple[Served, Path], talker: Served) -> None:
    for served in (one[0], talker):
        for path, body in (
            ("/rerank", {"query": "a", "documents": ["a"]}),
            ("/classify", {"input": "a", "labels": ["a", "b"]}),
        ):
            assert served.post(path, {"model": "nobody", **body}).status_code == 404


def test_a_generating_model_ranks_by_log_probabilities(talker: Served) -> None:
    reply = ask(talker, "/rerank", query="a", documents=["b", "c"])
    assert reply["method"] == "log-probabilities"
    assert all(0 < each["relevance_score"] < 1 for each in reply["results"])
    assert reply["usage"]["total_tokens"] > 0


def test_a_generating_model_chooses_among_labels(talker: Served) -> None:
    [found] = ask(talker, "/v1/classify", input="a", labels=["yes", "no", "z"])["data"]
    assert sum(found["probs"]) == pytest.approx(1)
    assert found["label"] == ["yes", "no", "z"][found["probs"].index(max(found["probs"]))]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/classify", {"input": "a"}, "labels"),
        ("/classify", {"input": "a", "labels": ["b", "b"]}, "labels"),
        ("/classify", {"input": [], "labels": ["a", "b"]}, "input"),
        ("/classify", {"input": ["a", ""], "labels": ["a", "b"]}, "input[1]"),
        ("/classify", {"input": ["a"] * 17, "labels": [f"l{i}" for i in range(128)]}, "input"),
        ("/rerank", {"query": "a", "documents": ["b", "c" * 600]}, "documents[1]"),
        ("/rerank", {"query": "a", "documents": ["b"], "use_activation": True}, "use_activation"),
    ],
)
def test_wrong_fields_of_a_generating_model(
    talker: Served, path: str, body: dict[str, Any], param: str
) -> None:
    reply = talker.post(path, body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


def test_fields_without_effect_are_reported(talker: Served) -> None:
    reply = talker.post("/rerank", {"query": "a", "documents": ["b"], "user": "me"})
    assert reply.headers["llmfw-ignored-params"] == "user"
