"""Which `Host` and `Origin` are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from llmfw.api.server.hosts import listens_on_loopback

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving

PATHS = ("/health", "/v1/models", "/v1/chat/completions", "/nothing", "/metrics")


@pytest.fixture
def serve(tmp_path) -> Callable[..., Iterator[Served]]:
    @contextmanager
    def serve(**options):
        with serving(EchoEngine(), byte_tokenizer(tmp_path), **options) as served:
            yield served

    return serve


def statuses(served: Served, **headers: str) -> set[int]:
    return {httpx.get(served.url + path, headers=headers).status_code for path in PATHS}


def test_without_keys_only_local_names_are_answered(serve):
    with serve() as served:
        for host in (
            "rebound.example",
            "rebound.example:30000",
            "localhost.evil.example",
            "evil@localhost",
            "10.1.2.3",
            "",
            "[::",
        ):
            assert statuses(served, host=host) == {403}
        for host in ("localhost:1", "127.0.0.1", "LOCALHOST", "[::1]:30000", "127.8.9.1"):
            assert 403 not in statuses(served, host=host)
        for origin in ("https://a.example", "null", "http://localhost.a.example", "vscode-webview://x"):
            assert statuses(served, origin=origin) == {403}
        for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:5173"):
            assert 403 not in statuses(served, origin=origin)


def test_refusals_name_the_header_and_the_option(serve):
    with serve() as served:
        error = httpx.get(f"{served.url}/v1/models", headers={"host": "a.example"}).json()["error"]
        assert "'a.example'" in error["message"]
        assert "--allow-host" in error["message"]
        assert error["code"] == "host_not_allowed"


def test_options_open_hosts_and_origins(serve):
    with serve(allow_host=("a.example",), allow_origin=("https://app.example/",)) as served:
        assert 403 not in statuses(served, host="A.example:80", origin="https://app.example")
        assert statuses(served, host="b.example") == {403}
        assert statuses(served, origin="http://app.example") == {403}
    with serve(allow_host=("*",), allow_origin=("*",)) as served:
        assert 403 not in statuses(served, host="b.example", origin="null")


def test_keys_or_public_addresses_allow_any_host(serve):
    with serve(api_key="secret") as served:
        assert 403 not in statuses(served, host="a.example", origin="https://a.example")
    with serve(host="0.0.0.0") as served:
        assert 403 not in statuses(served, host="a.example", origin="https://a.example")
    with serve(host="0.0.0.0", allow_host=("a.example",)) as served:
        assert 403 not in statuses(served, host="a.example", origin="https://b.example")
        assert statuses(served, host="b.example") == {403}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("1.2.3.4", False),
    ],
)
def test_loopback_addresses_are_known(host, expected):
    assert listens_on_loopback(host) is expected
