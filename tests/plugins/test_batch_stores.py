"""The bundled batch stores keep the promises of their interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.testing import BatchStoreTests
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_sqlite.batches import SqliteBatches


class TestMemoryBatches(BatchStoreTests):
    @pytest.fixture
    def open_store(self) -> Callable[[Path], BatchStore]:
        return MemoryBatches


class TestSqliteBatches(BatchStoreTests):
    @pytest.fixture
    def open_store(self) -> Callable[[Path], BatchStore]:
        return SqliteBatches

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True
