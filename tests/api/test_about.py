"""`GET /` says what the server is, and no more than it may."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from llmfw.core.base.about import version

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving


def test_an_open_server_names_version_and_model(server: Served) -> None:
    about = httpx.get(server.url).json()
    assert (about["name"], about["version"], about["model"]) == ("llmfw", version(), SERVED_NAME)


@pytest.mark.parametrize("key", ["", "secret"])
def test_with_keys_version_and_model_are_hidden(tmp_path: Path, key: str) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        about = httpx.get(served.url, headers={"x-api-key": key} if key else {}).json()
    assert about.keys() == {"name", "description", "links"}


def test_its_links_work(server: Served) -> None:
    links = httpx.get(server.url).json()["links"]
    assert links.keys() == {"models", "openapi", "health"}
    assert {httpx.get(server.url + path).status_code for path in links.values()} == {200}


def test_head_finds_the_server(server: Served) -> None:
    reply = httpx.head(server.url)
    assert (reply.status_code, reply.content) == (200, b"")
