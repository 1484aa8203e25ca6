"""Requests are the same with and without the root path, whether or not a proxy cuts it off."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from llmfw.api.server.edge_checks import check_edge
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    keys = {"api_key": "ann", "admin_api_key": "root", "root_path": "/team/llm"}
    with serving(EchoEngine(), tokenizer, **keys) as served:  # type: ignore[arg-type]
        yield served


def get(served: Served, path: str, key: str = "ann") -> httpx.Response:
    return httpx.get(served.url + path, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize("prefix", ["", "/team/llm"])
def test_routes_answer_with_and_without_it(served: Served, prefix: str) -> None:
    assert get(served, f"{prefix}/v1/models").json()["data"]
    assert httpx.get(f"{served.url}{prefix}/health").json() == {"status": "ok"}
    assert httpx.get(f"{served.url}{prefix}/v1/models").status_code == 401


@pytest.mark.parametrize("path", ["/team/llm/admin/cache", "/team/llm//admin/cache", "/admin/cache"])
def test_it_does_not_open_admin_routes(served: Served, path: str) -> None:
    assert get(served, path).status_code == 403
    assert get(served, path, "root").status_code == 200


def test_a_longer_name_is_another_path(served: Served) -> None:
    assert get(served, "/team/llmfoo/v1/models").status_code == 404
    assert get(served, "/team/llm").json()["name"] == "llmfw"


def test_links_and_the_document_have_it(served: Served) -> None:
    assert get(served, "/").json()["links"]["models"] == "/team/llm/v1/models"
    assert get(served, "/openapi.json").json()["servers"] == [{"url": "/team/llm"}]


@pytest.mark.parametrize("path", ["llm", "/llm/", "/", "/l m", "/a?b", "//a"])
def test_a_wrong_root_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="--root-path is"):
        check_edge(ServerConfig(served_model_name="m", root_path=path))


@pytest.mark.parametrize("proxy", ["nginx", "10.0.0.1/8", "*", ""])
def test_a_wrong_proxy_is_refused(proxy: str) -> None:
    with pytest.raises(ConfigError, match="--trusted-proxy is"):
        check_edge(ServerConfig(served_model_name="m", trusted_proxy=("10.0.0.0/8", proxy)))
