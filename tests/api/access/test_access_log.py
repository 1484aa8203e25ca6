"""The line of the access log: enough to see who asked for what, and nothing secret."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.api.access.access_log import access_line


def line(
    path: str = "/v1/files",
    query: bytes = b"",
    status: int = 200,
    tenant: str = "",
    request_id: str = "",
    **fields: Any,
) -> str:
    scope: Any = {
        "method": "GET",
        "path": path,
        "query_string": query,
        "http_version": "1.1",
        "client": ("::1", 5),
    }
    return access_line(scope | fields, status, tenant, request_id)


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
def test_values_of_a_query_are_not_shown(query: bytes, shown: str) -> None:
    assert f"/v1/files{shown} HTTP" in line(query=query)


def test_a_path_cannot_break_the_line_and_is_cut() -> None:
    assert "\n" not in line("/a\nINFO: forged \x1b[0m \ud800".encode("utf-8", "replace").decode())
    assert len(line("/" + "ü" * 100_000, b"a=1&" * 100_000)) < 1000
