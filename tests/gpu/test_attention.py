"""Every attention backend that plugins bring keeps the promises of the interface on a GPU."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing.attention import AttentionBackendTests

ENTRIES = load_plugins().registry.entries("attention")


@pytest.mark.gpu
class TestOnGpu(AttentionBackendTests):
    @pytest.fixture(params=ENTRIES, ids=[entry.name for entry in ENTRIES])
    def backend(self, request: pytest.FixtureRequest) -> type[AttentionBackend]:
        entry: Entry = request.param
        if missing := entry.missing():
            pytest.skip(f"{entry.name} needs {', '.join(missing)}")
        return entry.load()

    @pytest.fixture
    def device(self) -> str:
        return "cuda"

    @pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        return request.param

    @pytest.fixture(params=[64, 128])
    def head_dim(self, request: pytest.FixtureRequest) -> int:
        return request.param
