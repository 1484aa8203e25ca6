"""What the backend's options change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_triton import decode
from llmfw.plugins.attention_triton.backend import INTERPRETED_SMS, TritonAttention


@pytest.mark.parametrize("programs_per_sm", [1, 9])
def test_keys_are_split_as_the_option_says(programs_per_sm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grids: list[tuple[int, ...]] = []

    class Noted:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return attend[grid]

    attend = decode.attend_kernel
    monkeypatch.setattr(decode, "attend_kernel", Noted())
    case = AttentionCase(make_layer(), [(400, 1), (90, 1)], 1)
    options = TritonAttention.Options(programs_per_sm=programs_per_sm)
    backend = TritonAttention([case.spec], case.storage, options)
    backend.plan(case.batch)
    torch.testing.assert_close(case.forward(backend).double(), case.expected(), atol=1e-5, rtol=1e-5)
    key_heads = case.spec.num_kv_heads
    assert grids == [(2 + INTERPRETED_SMS * programs_per_sm // key_heads, key_heads)]


def test_invalid_options_are_refused() -> None:
    entry = load_plugins().registry.find("attention", "triton")
    with pytest.raises(ConfigError, match="programs_per_sm"):
        entry.build_options({"attention.programs_per_sm": "0"})
