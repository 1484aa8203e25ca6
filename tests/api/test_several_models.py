"""Several models behind one server: each request reaches the engine of its model, and a dead engine takes no other down."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import CRASH, EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

OTHER = "other"
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
    "/generate": {"text": "Hi"},
}
"""Path of each route that generates → body without a model."""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Served]:
    """A server with the models SERVED_NAME and OTHER."""
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), others={OTHER: EchoEngine(max_model_len=200)}
    ) as served:
        yield served


def num_requests(served: Served) -> tuple[int, int]:
    """Return how many requests the engines of the two models have got."""
    first, second = (client._engine for client in served.clients.values())
    return len(first.requests), len(second.requests)


@pytest.mark.parametrize("path", BODIES)
def test_requests_reach_the_engine_of_their_model(two: Served, path: str) -> None:
    for model, counts in ((None, (1, 0)), (OTHER, (1, 1)), (SERVED_NAME, (2, 1))):
        given = {} if model is None else {"model": model}
        if path == "/v1/messages":
            given = {"model": model or SERVED_NAME}
        reply = two.post(path, BODIES[path] | given)
        assert reply.status_code == 200, reply.text
        assert reply.json().get("model", model or SERVED_NAME) == (model or SERVED_NAME)
        assert num_requests(two) == counts


@pytest.mark.parametrize("path", BODIES)
def test_unknown_models_get_404(two: Served, path: str) -> None:
    reply = two.post(path, BODIES[path] | {"model": "nobody"})
    assert reply.status_code == 404
    message = reply.json()["error"]["message"]
    assert message == f"there is no model 'nobody'; this server has {SERVED_NAME!r}, {OTHER!r}"


def test_all_models_are_listed_and_described(two: Served) -> None:
    with two.openai() as sdk:
        assert [model.id for model in sdk.models.list()] == [SERVED_NAME, OTHER]
        assert sdk.models.retrieve(OTHER).id == OTHER
    assert httpx.get(f"{two.url}/").json()["model"] == f"{SERVED_NAME}, {OTHER}"
    info = f"{two.url}/get_model_info"
    assert httpx.get(info).json()["served_model_name"] == SERVED_NAME
    described = httpx.get(info, params={"model": OTHER}).json()
    assert (described["served_model_name"], described["max_model_len"]) == (OTHER, 200)
    assert httpx.get(info, params={"model": "nobody"}).status_code == 404
    reply = two.post("/v1/tokenize", {"prompt": "Hi", "model": OTHER}).json()
    assert reply["max_model_len"] == 200


def test_a_long_unknown_name_is_cut(server: Served) -> None:
    reply = server.chat("Hello", model="x" * 100_000)
    assert reply.status_code == 404
    assert len(reply.content) < 1000


def batch_of(two: Served, *models: str) -> dict[str, Any]:
    """Run a batch with a line for each model name; return the batch once it has ended."""
    lines = [
        {
            "custom_id": str(i),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": model, "messages": MESSAGES},
        }
        for i, model in enumerate(models)
    ]
    with two.openai() as sdk:
        data = "\n".join(map(json.dumps, lines)).encode()
        file = sdk.files.create(file=("lines.jsonl", data), purpose="batch")
        batch = sdk.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        wait_until(lambda: sdk.batches.retrieve(batch.id).status in ("completed", "failed"))
        return sdk.batches.retrieve(batch.id).model_dump()


def test_batches_run_on_the_engine_of_their_model(two: Served) -> None:
    batch = batch_of(two, OTHER, OTHER)
    assert (batch["status"], batch["model"], batch["request_counts"]["completed"]) == ("completed", OTHER, 2)
    assert num_requests(two) == (0, 2)
    mixed = batch_of(two, SERVED_NAME, OTHER)
    assert mixed["status"] == "failed"
    [error] = mixed["errors"]["data"]
    assert (error["code"], error["line"]) == ("several_models", 2)


def test_background_responses_are_found_whatever_their_model(two: Served) -> None:
    made = two.post("/v1/responses", {"model": OTHER, "input": "Hi", "background": True}).json()
    url = f"{two.url}/v1/responses/{made['id']}"
    wait_until(lambda: httpx.get(url).json()["status"] == "completed")
    assert httpx.get(url).json()["output"][0]["content"][0]["text"] == "Hi"
    assert httpx.post(f"{url}/cancel").json()["status"] == "completed"


def test_routes_of_plugins_serve_each_model(tmp_path: Path) -> None:
    routes = [(plugin, path) for plugin, path in load_plugins().routes if plugin == "api_pooling"]
    tokenizer, others = byte_tokenizer(tmp_path), {OTHER: EchoEngine()}
    with serving(EchoEngine(), tokenizer, others=others, plugin_routes=routes) as served:
        for model, has_requests in ((OTHER, [False, True]), (None, [True, False])):
            given = {} if model is None else {"model": model}
            reply = served.post("/score", {"text_1": "a", "text_2": "b"} | given)
            assert (reply.status_code, reply.json()["model"]) == (200, model or SERVED_NAME)
            assert served.post("/invocations", {"prompt": "a"} | given).status_code == 200
            assert [count > 0 for count in num_requests(served)] == has_requests
            for engine in (served.engine, others[OTHER]):
                engine.requests.clear()
        assert served.post("/score", {"text_1": "a", "text_2": "b", "model": "nobody"}).status_code == 404


def test_ollama_s_clients_find_all_models(tmp_path: Path) -> None:
    routes = [(plugin, path) for plugin, path in load_plugins().routes if plugin == "api_ollama"]
    tokenizer, others = byte_tokenizer(tmp_path), {OTHER: EchoEngine(max_model_len=200)}
    with serving(EchoEngine(), tokenizer, others=others, plugin_routes=routes) as served:
        tags = httpx.get(f"{served.url}/api/tags").json()["models"]
        assert [tag["name"] for tag in tags] == [f"{SERVED_NAME}:latest", f"{OTHER}:latest"]
        running = httpx.get(f"{served.url}/api/ps").json()["models"]
        assert [model["context_length"] for model in running] == [512, 200]
        shown = served.post("/api/show", {"model": OTHER}).json()["model_info"]
        assert shown["echo.context_length"] == 200
        chat = {"model": f"{OTHER}:latest", "messages": MESSAGES, "stream": False}
        assert served.post("/api/chat", chat).status_code == 200
        assert num_requests(served) == (0, 1)
        assert served.post("/api/chat", {**chat, "model": "nobody"}).status_code == 404


def test_metrics_have_a_label_for_the_model(two: Served) -> None:
    two.post("/v1/completions", {"model": OTHER, "prompt": "Hi"})
    lines = httpx.get(f"{two.url}/metrics").text.splitlines()
    for name in (SERVED_NAME, OTHER):
        assert f'llmfw_engine_restarts_total{{model="{name}"}} 0.0' in lines
        assert any(line.startswith(f'llmfw_kv_tokens{{model="{name}"}}') for line in lines)
        assert any(line.startswith("llmfw_engine_info{") and f'model="{name}"' in line for line in lines)


def test_admin_routes_speak_to_one_engine(two: Served) -> None:
    for path in ("/admin/policy", "/admin/cache"):
        assert httpx.get(two.url + path, params={"model": OTHER}).status_code == 200
        assert httpx.get(two.url + path, params={"model": "nobody"}).status_code == 404
    assert httpx.post(f"{two.url}/admin/cache/flush", params={"model": OTHER}).status_code == 200
    assert httpx.post(f"{two.url}/flush_cache").status_code == 200


def test_a_dead_engine_takes_no_other_model_down(two: Served) -> None:
    assert httpx.get(f"{two.url}/health").json() == {"status": "ok", "models": "2 of 2"}
    assert two.post("/v1/completions", {"model": OTHER, "prompt": [CRASH]}).status_code >= 500
    for path in ("/health", "/health/ready", "/health_generate"):
        found = httpx.get(two.url + path)
        assert found.status_code == 200
        assert found.json()["models"] == "1 of 2"
        assert found.json()["unavailable"].startswith(f"{OTHER}: ")
        assert httpx.get(two.url + path, params={"model": OTHER}).status_code == 503
        assert httpx.get(two.url + path, params={"model": SERVED_NAME}).json() == {"status": "ok"}
    assert httpx.get(f"{two.url}/health/live").status_code == 200
    assert two.post("/v1/completions", {"model": SERVED_NAME, "prompt": "Hi"}).status_code == 200
    assert httpx.get(f"{two.url}/metrics").status_code == 200


def test_commands_for_all_leave_dead_engines_out(two: Served) -> None:
    """`/admin/sleep` and `/admin/wake` reach the other engine, which refuses them: it has no process of its own."""
    assert two.post("/v1/completions", {"model": SERVED_NAME, "prompt": [CRASH]}).status_code >= 500
    level = logging.getLevelName(logging.getLogger().level).lower()
    for path, body, status in (
        ("/flush_cache", {}, 200),
        ("/admin/reload", {"log_level": level}, 200),
        ("/admin/sleep", {}, 400),
        ("/admin/wake", {}, 400),
        (f"/admin/wake?model={SERVED_NAME}", {}, 503),
    ):
        reply = two.post(path, body)
        assert reply.status_code == status, f"{path}: {reply.text}"
