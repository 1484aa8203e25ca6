"""What vLLM's clients, and platforms that host vLLM, ask of a server besides answers."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving


def test_a_server_says_its_version(server: Served) -> None:
    assert httpx.get(f"{server.url}/version").json() == {"version": version("llmfw-engine")}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_ping_needs_no_key(tmp_path: Path, method: str) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        assert httpx.request(method, f"{served.url}/ping").status_code == 200
        assert httpx.get(f"{served.url}/version").status_code == 401
