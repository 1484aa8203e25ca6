"""The parts that settings stand for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.api.parts import open_stores
from llmfw.api.services import Stores
from llmfw.core.config import ServerConfig
from llmfw.core.errors import ConfigError
from llmfw.core.plugins import load_plugins


def stores_of(**settings: object) -> Stores:
    config = ServerConfig(served_model_name="m", **settings)  # type: ignore[arg-type]

    async def opened() -> Stores:
        stores = await open_stores(config, load_plugins().registry)
        for store in (stores.files, stores.batches, stores.responses):
            await store.close()
        return stores

    return asyncio.run(opened())


def test_what_is_kept_is_kept_in_memory_unless_a_folder_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert type(stores_of().responses).__name__ == "MemoryResponses"
    assert "end with the server; --storage DIR keeps them" in caplog.text
    stores_of(storage=str(tmp_path))
    assert (tmp_path / "responses.db").exists()


def test_a_store_that_cannot_be_had_is_a_line_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--storage DIR"):
        stores_of(response_store="sqlite")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used as storage"):
        stores_of(storage=str(tmp_path / "file"))


SHELVES = """
from llmfw.core.file_store import FileStore
from llmfw.plugins.store_memory.files import MemoryFiles

class Shelves(MemoryFiles):
    class Options(FileStore.Options, frozen=True):
        shelf: int = 1

    def __init__(self, folder, options):
        super().__init__(folder)
        self.shelf = options.shelf

@hookimpl
def register_file_stores(register):
    register("shelves", __name__ + ":Shelves")
"""


def test_a_store_with_options_is_given_them(
    install_plugin: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    install_plugin("shelves", SHELVES)
    assert stores_of(file_store="shelves").files.shelf == 1  # type: ignore[attr-defined]
    with caplog.at_level("INFO"):
        files = stores_of(file_store="shelves", options={"file_store.shelf": "7"}).files
    assert files.shelf == 7  # type: ignore[attr-defined]
    assert "Files are kept by 'shelves', batches by 'memory', responses by 'memory'" in caplog.text


def test_an_option_that_a_store_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="file store 'memory' has no option 'shelf'; it has none"):
        stores_of(options={"file_store.shelf": "7"})
