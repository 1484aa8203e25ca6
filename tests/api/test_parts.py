"""The parts that settings stand for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from llmfw.api.parts import open_response_store
from llmfw.core.config import ServerConfig
from llmfw.core.errors import ConfigError
from llmfw.core.plugins import load_plugins
from llmfw.core.storage import ResponseStore


def store_of(**settings: object) -> ResponseStore:
    config = ServerConfig(served_model_name="m", **settings)  # type: ignore[arg-type]
    return open_response_store(config, load_plugins().registry)


def test_responses_are_kept_in_memory_unless_a_folder_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert type(store_of()).__name__ == "MemoryResponses"
    assert "end with the server; --storage DIR keeps them" in caplog.text
    asyncio.run(store_of(storage=str(tmp_path)).close())
    assert (tmp_path / "responses.db").exists()


def test_a_store_that_cannot_be_had_is_a_line_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--storage DIR"):
        store_of(response_store="sqlite")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used as storage"):
        store_of(storage=str(tmp_path / "file"))
