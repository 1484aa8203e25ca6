"""Ollama's own Python client against a server with the demo model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ...doubles.serving import Served, serving

ollama_client = pytest.importorskip("ollama")
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def demo(ollama_routes: list[tuple[str, str]]) -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    engine = build_generation_engine(
        EngineConfig(model=path, dtype="float32", max_total_tokens=4096), registry
    )
    tokenizer = load_tokenizer(path)
    checker = GrammarChecker(choose_grammar_backend("auto", registry), tokenizer, engine.info.vocab_size)
    parts = {"grammar_checker": checker, "reasoning_parser": None}
    with serving(
        engine, tokenizer, tokenizer.chat_template, name="demo", plugin_routes=ollama_routes, **parts
    ) as served:
        yield served


@pytest.fixture
def client(demo: Served) -> Iterator[ollama_client.Client]:
    client = ollama_client.Client(host=demo.url)
    yield client
    client._client.close()


def test_a_chat_is_answered_with_figures(client: ollama_client.Client) -> None:
    reply = client.chat("demo", CAPITAL, options=GREEDY)
    assert reply.message.content == "The capital of France is Paris."
    assert (reply.model, reply.done, reply.done_reason) == ("demo", True, "stop")
    assert (reply.prompt_eval_count, reply.eval_count) == (16, 10)
    assert reply.total_duration >= reply.prompt_eval_duration + reply.eval_duration > 0


def test_a_streamed_chat_has_the_same_text(client: ollama_client.Client) -> None:
    parts = list(client.chat("demo:latest", CAPITAL, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == "The capital of France is Paris."
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 3
    assert parts[-1].eval_count == 10


def test_a_prompt_is_answered_through_the_template(client: ollama_client.Client) -> None:
    reply = client.generate("demo", CAPITAL[0]["content"], options=GREEDY)
    assert (reply.response, reply.context) == ("The capital of France is Paris.", None)


def test_a_raw_prompt_is_continued(client: ollama_client.Client) -> None:
    reply = client.generate(
        "demo", "The capital of France is", raw=True, options={**GREEDY, "num_predict": 2}
    )
    assert (reply.response, reply.done_reason) == (" Paris", "length")


def test_a_schema_constrains_the_answer(client: ollama_client.Client) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    schema["additionalProperties"] = False
    reply = client.chat("demo", CAPITAL, format=schema, options={**GREEDY, "num_predict": 60})
    assert reply.message.content.replace(" ", "").replace("\n", "") in ('{"n":1}', '{"n":2}')


def test_a_seed_gives_the_same_text(client: ollama_client.Client) -> None:
    texts = {client.chat("demo", CAPITAL, options={"seed": 7}).message.content for _ in range(2)}
    assert len(texts) == 1


def test_models_are_listed_and_shown(client: ollama_client.Client) -> None:
    [model] = client.list().models
    assert model.model == "demo:latest"
    assert model.size > 0
    shown = client.show(model.model)
    assert shown.capabilities[0] == "completion"
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == 2048
    [running] = client.ps().models
    assert (running.name, running.context_length) == ("demo:latest", 2048)


@pytest.mark.parametrize(
    "call",
    [lambda client: client.chat("llama3", CAPITAL), lambda client: client.show("llama3")],
    ids=["chat", "show"],
)
def test_an_unknown_model_is_404(client: ollama_client.Client, call) -> None:
    with pytest.raises(ollama_client.ResponseError, match="model 'llama3' not found") as caught:
        call(client)
    assert caught.value.status_code == 404


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.pull("llama3"),
        lambda client: client.push("demo"),
        lambda client: client.create("mine", from_="demo"),
        lambda client: client.copy("demo", "mine"),
        lambda client: client.delete("demo"),
    ],
    ids=["pull", "push", "create", "copy", "delete"],
)
def test_changes_of_models_are_refused_in_one_line(client: ollama_client.Client, call) -> None:
    with pytest.raises(ollama_client.ResponseError, match="llmfw serve NAME") as caught:
        call(client)
    assert caught.value.status_code == 400


def test_stream_errors_before_the_first_line_have_status(client: ollama_client.Client) -> None:
    with pytest.raises(ollama_client.ResponseError, match=r"options.temperature is -1") as caught:
        list(client.chat("demo", CAPITAL, options={"temperature": -1}, stream=True))
    assert caught.value.status_code == 400


def test_the_async_client_streams(demo: Served) -> None:
    import asyncio

    async def text() -> str:
        client = ollama_client.AsyncClient(host=demo.url)
        parts = [part async for part in await client.chat("demo", CAPITAL, options=GREEDY, stream=True)]
        await client._client.aclose()
        return "".join(part.message.content for part in parts)

    assert asyncio.run(text()) == "The capital of France is Paris."


def test_size_equals_the_weights_size(client: ollama_client.Client) -> None:
    path = Path(resolve_model("demo", load_plugins().registry).path)
    assert client.list().models[0].size == (path / "model.safetensors").stat().st_size
