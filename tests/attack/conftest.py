"""One server for all attacks of a module: what one attack breaks, the next one finds."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ..crash.server import ServerProcess


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A served demo model. A module's OPTIONS, if it has some, are further ones of the command line."""
    options = getattr(request.module, "OPTIONS", ())
    with ServerProcess(tmp_path_factory.mktemp("served"), *options) as server:
        yield server


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    """A client of the server, without a key."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        yield client
