"""A server for the tests of the API, one for each module."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)) as served:
        yield served


@pytest.fixture(scope="module")
def sdk(server: Served) -> Iterator[openai.OpenAI]:
    with server.openai() as client:
        yield client
