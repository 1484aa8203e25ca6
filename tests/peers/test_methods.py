"""Methods of HTTP that load balancers and clients send, and the list of models that Anthropic's client reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

ENDLESS = "tests.peers.endless_route:endless"
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def send(server: Served, method: str, path: str, **options: Any) -> httpx.Response:
    return httpx.request(method, server.url + path, timeout=20, **options)


@pytest.mark.parametrize(
    "path", ["/", "/health", "/v1/models", f"/v1/models/{SERVED_NAME}", "/get_model_info", "/metrics"]
)
def test_head_replies_like_get(server: Served, path: str) -> None:
    get, head = send(server, "GET", path), send(server, "HEAD", path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert "x-request-id" in head.headers
    if path != "/metrics":
        assert head.headers["content-length"] == get.headers["content-length"]


def test_head_keeps_the_connection_usable(server: Served) -> None:
    with httpx.Client(base_url=server.url) as client:
        for _ in range(2):
            assert client.head("/v1/models").status_code == 200
            assert client.get("/v1/models").json()["object"] == "list"


def test_head_fails_like_get(server: Served) -> None:
    for path, status in (("/v1/models/nope", 404), ("/nope", 404), ("/v1/chat/completions", 405)):
        assert send(server, "HEAD", path).status_code == send(server, "GET", path).status_code == status


def test_allowed_methods_include_head(server: Served) -> None:
    """Where GET is answered, so is HEAD; where it is not, neither is."""
    reply = send(server, "DELETE", "/v1/models")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "allowed: GET, HEAD, OPTIONS" in reply.json()["error"]["message"]
    assert "HEAD" not in send(server, "GET", "/v1/chat/completions").headers["allow"]


def test_head_needs_the_key_like_get(tmp_path: Any) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        assert send(served, "HEAD", "/v1/models").status_code == 401
        headers = {"authorization": "Bearer secret"}
        assert send(served, "HEAD", "/v1/models", headers=headers).status_code == 200
        assert send(served, "HEAD", "/health").status_code == 200


def test_head_ends_a_plugin_s_stream(tmp_path: Any) -> None:
    routes = [("tests", ENDLESS)]
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes) as served:
        reply = send(served, "HEAD", "/endless")
    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
def test_unknown_paths_are_404_for_any_method(server: Served, method: str) -> None:
    for path in ("/nope", "/v1/nope", "/api/v9/nope"):
        reply = send(server, method, path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_url")


@pytest.fixture
def client(server: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="None", max_retries=0) as client:
        yield client


def test_anthropics_client_lists_the_model(client: anthropic.Anthropic) -> None:
    [model] = list(client.models.list())
    assert (model.id, model.type, model.display_name) == (SERVED_NAME, "model", SERVED_NAME)
    assert (model.lifecycle, model.max_input_tokens, model.max_tokens) == ("active", 512, 512)
    assert client.models.retrieve(SERVED_NAME) == model
    page = client.models.list(after_id=SERVED_NAME)
    assert (page.data, page.has_more) == ([], False)


def test_anthropics_client_sees_its_errors(client: anthropic.Anthropic, server: Served) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.models.retrieve("nope")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    for query in ("limit=0", "limit=many", "after_id=nope"):
        reply = send(server, "GET", f"/v1/models?{query}", headers=ANTHROPIC)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_other_clients_receive_openai_s_form(server: Served) -> None:
    assert send(server, "GET", "/v1/models").json()["data"][0]["object"] == "model"
    assert send(server, "GET", "/v1/models/nope").json()["error"]["code"] == "model_not_found"
