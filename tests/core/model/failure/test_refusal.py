"""The error of a model with a buffer that is not finite names the buffer."""

from __future__ import annotations

import torch
from torch import nn

from llmfw.core.model.failure.refusal import not_finite


def test_buffers_of_eight_bit_floats_are_searched() -> None:
    """torch itself cannot say whether one of them is NaN."""
    model = nn.Module()
    model.register_buffer("codes", torch.zeros(3).to(torch.float8_e4m3fn))
    assert "(" not in not_finite(model, "its logits")
    model.register_buffer("scales", torch.tensor([1.0, torch.nan]).to(torch.float8_e5m2))
    assert "(scales is NaN or infinite)" in not_finite(model, "its logits")
