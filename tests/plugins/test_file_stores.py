"""The bundled file stores keep the promises of their interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.testing import FileStoreTests
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_sqlite.files import SqliteFiles


class TestMemoryFiles(FileStoreTests):
    @pytest.fixture
    def open_store(self) -> Callable[[Path], FileStore]:
        return MemoryFiles


class TestSqliteFiles(FileStoreTests):
    @pytest.fixture
    def open_store(self) -> Callable[[Path], FileStore]:
        return SqliteFiles

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True
