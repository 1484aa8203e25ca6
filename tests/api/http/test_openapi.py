"""The server describes itself: GET /openapi.json is valid, complete, and no request made from it makes a 5xx."""

from __future__ import annotations

from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving
from ...length import of_length

EXAMPLES = of_length(4, 25)  # for each operation


@pytest.fixture(scope="module")
def document(server: Served) -> dict[str, Any]:
    return dict(httpx.get(f"{server.url}/openapi.json").json())


def test_our_routes_declare_their_response_types(document):
    operations = [entry for path in document["paths"].values() for entry in path.values()]
    assert len(operations) > 5
    assert [entry for entry in operations if "content" not in entry["responses"]["200"]] == []


def test_our_post_routes_have_a_body_or_id(document):
    posts = {path: entry["post"] for path, entry in document["paths"].items() if "post" in entry}
    bare = [path for path, entry in posts.items() if "requestBody" not in entry and "{" not in path]
    # there is one cache, one kind of engine, and one server
    assert bare == ["/admin/cache/flush", "/admin/replicas", "/admin/wake", "/flush_cache", "/ping"]


def test_the_document_declares_the_key(tmp_path):
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        url = f"{served.url}/openapi.json"
        assert httpx.get(url).status_code == 401
        document = httpx.get(url, headers={"Authorization": "Bearer secret"}).json()
    assert document["security"] == [{"key": []}]


@pytest.mark.long
@pytest.mark.slow
def test_requests_near_the_document_never_give_5xx(document, server):
    schema = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == sum(len(path) for path in document["paths"].values())
    for operation in operations:
        if operation.path == "/admin/drain":  # after which the server refuses all others
            continue
        _call_often(operation, GenerationMode.POSITIVE, server.url)
        if "requestBody" in operation.definition.raw:
            _call_often(operation, GenerationMode.NEGATIVE, server.url)


def _call_often(operation: Any, mode: GenerationMode, url: str) -> None:
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=[not_a_server_error], timeout=20)

    call()
