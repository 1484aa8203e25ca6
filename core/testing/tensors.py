"""The base class of conformance tests of components that compute with tensors: device and dtypes."""

from __future__ import annotations

import pytest
import torch


class TensorTests:
    """Base class of conformance tests of components that compute with tensors."""

    @pytest.fixture
    def device(self) -> str:
        """Return the device of the tensors."""
        return "cpu"

    @pytest.fixture(params=[torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
    def dtype(self, request: pytest.FixtureRequest) -> torch.dtype:
        """Return the dtype of the tensors."""
        dtype: torch.dtype = request.param
        return dtype
