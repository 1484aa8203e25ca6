"""The line of the access log: enough to see who asked for what, and nothing secret."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from llmfw.api.access.access_log import access_line
from llmfw.api.access.redaction import Redaction


def line(
    path: str = "/v1/files",
    query: bytes = b"",
    status: int = 200,
    tenant: str = "",
    request_id: str = "",
    keys: Collection[bytes] = (),
    **fields: Any,
) -> str:
    scope: Any = {
        "method": "GET",
        "path": path,
        "query_string": query,
        "http_version": "1.1",
        "client": ("::1", 5),
    }
    return access_line(scope | fields, status, tenant, request_id, Redaction(keys.__contains__))


def test_a_line_has_client_request_status_and_tenant() -> None:
    assert line() == '::1:5 - "GET /v1/files HTTP/1.1" 200 OK'
    assert line(status=404, tenant="ann") == '::1:5 - "GET /v1/files HTTP/1.1" 404 Not Found tenant=ann'
    assert line(tenant="ann", request_id="req_1").endswith("200 OK tenant=ann id=req_1")
    assert line(status=599, client=None) == '- - "GET /v1/files HTTP/1.1" 599'


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (b"limit=5&after=file-1", "?limit=***&after=***"),
        (b"api_key=sk-1", "?api_key=***"),
        (b"sk-1", "?***"),
        (b"sk-1=1", "?***"),
        (b"a=1&sk-1", "?a=***&***"),
        (b"\xff=%0a", "?***"),
    ],
)
def test_query_values_are_not_logged(query: bytes, shown: str) -> None:
    assert f"/v1/files{shown} HTTP" in line(query=query)


def test_log_lines_escape_and_truncate_paths() -> None:
    assert "\n" not in line("/a\nINFO: forged \x1b[0m \ud800".encode("utf-8", "replace").decode())
    assert len(line("/" + "ü" * 100_000, b"a=1&" * 100_000)) < 1000


KEY = "Zx3/k+9q!"


@pytest.mark.parametrize("path", ["/v1/files/KEY", "/KEY", "/v1/KEY/content", "/a/Bearer KEY", "/key=KEY"])
def test_known_keys_are_hidden(path: str) -> None:
    shown = line(path.replace("KEY", KEY), request_id=f"id-{KEY}", keys=[KEY.encode()])
    assert "***" in shown
    assert "id=id-***" in shown
    assert not any(part in shown for part in ("Zx3", "9q"))


@pytest.mark.parametrize("place", range(28, 36))
def test_a_key_at_the_cut_is_hidden(place: int) -> None:
    assert "Zx3" not in line("/" * place + KEY, keys=[KEY.encode()])


LIKE_KEYS = [
    "sk-abcdefghij0123456789",
    "sk-proj-Ab1_" + "x" * 20,
    "hf_abcdefghijklmnop",
    "ghp_0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "Zm9vYmFyQkFaMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3A=",
]


@pytest.mark.parametrize("key", LIKE_KEYS)
def test_texts_like_keys_are_hidden(key: str) -> None:
    shown = line(f"/v1/models/{key}", request_id=key)
    assert '"GET /v1/models/*** HTTP' in shown
    assert shown.endswith("id=***")


@pytest.mark.parametrize(
    "name",
    [
        "req_0123456789abcdef0123456789abcdef",
        "123e4567-e89b-12d3-a456-426614174000",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "task-12345678",
    ],
)
def test_ordinary_ids_are_shown(name: str) -> None:
    assert line(f"/{name}", request_id=name, keys=[KEY.encode()]).count(name) == 2


def test_known_paths_are_not_searched_for_keys() -> None:
    """The search costs a digest for each run of words, and most requests have such a path."""
    searched: list[str] = []

    def redact(text: str) -> str:
        searched.append(text)
        return text

    paths = {"/v1/models": "/v1/models", "/v1/models/sk-a": "/v1/models/{model_id}", "/sk-b": None}
    for path, template in paths.items():
        scope: Any = {"method": "GET", "path": path, "http_version": "1.1", "path_template": template}
        access_line(scope, 200, "", "", redact)  # type: ignore[arg-type]
    assert searched == ["/v1/models/sk-a", "/sk-b"]
