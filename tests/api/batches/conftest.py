"""Stores of each kind, and a tokenizer for the echo engine."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.interfaces.tokenizer import Tokenizer

from ...doubles.serving import MARKERS, byte_tokenizer
from .rig import fresh_stores


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return empty stores, by their names in `Stores`."""
    stores = fresh_stores(request.param, tmp_path)
    yield stores
    with warnings.catch_warnings():  # a file without a name is closed with its last reader
        warnings.simplefilter("ignore", ResourceWarning)
        for store in stores.values():
            asyncio.run(store.close())


@pytest.fixture(scope="package")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
