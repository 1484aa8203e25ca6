"""The promises of an attention backend on a device, in every dtype."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.plugins.attention_triton.backend import TritonAttention


@pytest.mark.gpu
class TestTritonAttentionOnADevice(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return TritonAttention

    @pytest.fixture
    def device(self) -> str:
        return "cuda"

    @pytest.fixture(params=[64, 128])
    def head_dim(self, request: pytest.FixtureRequest) -> int:
        head_dim: int = request.param
        return head_dim
