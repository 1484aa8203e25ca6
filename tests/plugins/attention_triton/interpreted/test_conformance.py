"""The promises of an attention backend, held by the kernels as Triton's interpreter runs them."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.attention import AttentionBackend
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.plugins.attention_triton.backend import TritonAttention


class TestTritonAttention(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return TritonAttention

    @pytest.fixture(params=[torch.float32, torch.float16], ids=["fp32", "fp16"])
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        """Return what the interpreter computes right: not bfloat16."""
        dtype: torch.dtype = request.param
        return dtype
