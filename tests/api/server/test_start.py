"""What a server settles and says before it takes connections."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from llmfw.api.server.start import prepare_process
from llmfw.core.base.config import ServerConfig

pytest.importorskip("resource")

LIMITS = """
import logging, resource
logging.basicConfig(format="%(message)s")
from llmfw.api.server.start import prepare_process
from llmfw.core.base.config import ServerConfig
resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))
prepare_process(ServerConfig(served_model_name="m", max_connections=1000), has_keys=True)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("hard", "expected"), [(4000, "1256"), (600, "600")])
def test_the_limit_of_open_files_fits_the_connections(
    fresh_python: Callable[..., str], hard: int, expected: str
) -> None:
    assert fresh_python(LIMITS.format(hard=hard)).strip() == expected


def test_too_few_file_descriptors_suggest_a_setting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 600))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    prepare_process(ServerConfig(served_model_name="m", max_connections=1000), has_keys=True)
    assert "allows 600 open files" in caplog.text
    assert "--max-connections 344" in caplog.text


@pytest.mark.parametrize(
    ("host", "has_keys", "warns"),
    [("0.0.0.0", False, True), ("::", False, True), ("0.0.0.0", True, False), ("127.0.0.1", False, False)],
)
def test_an_open_server_warns_in_capitals(
    caplog: pytest.LogCaptureFixture, host: str, has_keys: bool, warns: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        prepare_process(ServerConfig(served_model_name="m", host=host), has_keys=has_keys)
    assert (f"THE SERVER LISTENS ON {host}" in caplog.text) == warns
