"""Servers with Ollama's routes for the tests of other servers' clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llmfw.core.plugin.plugins import load_plugins

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import MARKERS, Served, byte_tokenizer, serving


@pytest.fixture(scope="session")
def ollama_routes() -> list[tuple[str, str]]:
    """Return the routes that the bundled plugin registers, as a server finds them."""
    return [(plugin, path) for plugin, path in load_plugins().routes if plugin == "api_ollama"]


@pytest.fixture(scope="module")
def ollama(
    tmp_path_factory: pytest.TempPathFactory, ollama_routes: list[tuple[str, str]]
) -> Iterator[Served]:
    """Return a server whose model repeats the last message, and thinks."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
    with serving(EchoEngine(), tokenizer, plugin_routes=ollama_routes) as served:
        yield served
