"""An unknown URL that is close to a route names the route, or what is wrong with the base URL."""

from __future__ import annotations

import httpx
import pytest

from llmfw.api.http.url_hint import MAX_PATH, url_hint

from ...doubles.serving import Served

TWICE = "the base URL has /v1 twice (Anthropic's clients add it themselves)"


def message_of(server: Served, method: str, path: str) -> str:
    reply = httpx.request(method, server.url + path, timeout=20)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_url")
    return str(reply.json()["error"]["message"])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        *((f"/{name}", "the base URL needs /v1") for name in ("messages", "embeddings", "responses")),
        *((f"/{name}", "the base URL needs /v1") for name in ("chat/completions", "completions", "models")),
        ("/files/file-1/content", "the base URL needs /v1"),
        ("/v1/v1/chat/completions", TWICE),
        ("/v1/v1/messages", TWICE),
        ("/v1/v1/models/some-model", TWICE),
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("/openai/v1/chat/completions", "did you mean /v1/chat/completions?"),
        ("/completion", "this is a route of llama.cpp; use /v1/completions"),
        ("/embedding", "this is a route of llama.cpp; use /v1/embeddings"),
        ("/slots", "this is a route of llama.cpp; use /metrics"),
        ("/props", "this is a route of llama.cpp; use /get_model_info"),
    ],
)
def test_an_unknown_url_suggests_the_right_one(server: Served, path: str, hint: str) -> None:
    for method in ("GET", "POST"):
        assert message_of(server, method, path) == f"Unknown request URL: {method} {path}; {hint}"


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", "/v1", "/", "/v1/v1/nope"])
def test_other_unknown_urls_get_no_hint(path: str) -> None:
    assert url_hint(path, ["/", "/health", "/v1/models", "/v1/files/{id:str}"]) == ""


def test_a_long_path_is_not_compared() -> None:
    route = "/v1/" + "a" * MAX_PATH
    assert url_hint(route[:-1], [route]) == "" != url_hint(route[:-1][:MAX_PATH], [route])
