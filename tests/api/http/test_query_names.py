"""Parameters of a query that a route does not know are reported, or refused where requests are read strictly."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from llmfw.api.http.body import IGNORED_HEADER

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer, serving


@pytest.fixture(scope="module", params=[False, True])
def http(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, bool]]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with (
        serving(EchoEngine(), tokenizer, strict_params=request.param) as served,
        httpx.Client(base_url=served.url, trust_env=False) as client,
    ):
        yield client, request.param


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("/v1/models?limit=3&after=&limit=4", "after, limit"),
        ("/v1/files?limit=3&include[]=x", "include[]"),
        ("/health?x", "x"),
        ("/v1/models?a%0d%0ab=1&%ff=2", "a%0D%0Ab, %EF%BF%BD"),
    ],
)
def test_unknown_parameters_are_reported(http: tuple[httpx.Client, bool], path: str, ignored: str) -> None:
    client, strict = http
    reply = client.get(path)
    if strict:
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "unsupported_parameter"
    else:
        assert (reply.status_code, reply.headers[IGNORED_HEADER]) == (200, ignored)


def test_known_parameters_are_not_reported(http: tuple[httpx.Client, bool]) -> None:
    reply = http[0].get("/v1/files?limit=3&order=asc&purpose=batch")
    assert (reply.status_code, reply.headers.get(IGNORED_HEADER)) == (200, None)


def test_parameters_are_reported_with_fields(http: tuple[httpx.Client, bool]) -> None:
    client, strict = http
    if not strict:
        reply = client.post("/v1/completions?beta=true", json={"prompt": "a", "max_tokens": 1, "evil": 1})
        assert reply.headers[IGNORED_HEADER] == "evil, beta"
