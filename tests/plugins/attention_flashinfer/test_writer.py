"""What writes keys and values where the Triton kernel cannot run. `writes_by_kernel.py` tests it where it can."""

from __future__ import annotations

import sys

import pytest

from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_flashinfer.writer import choose_writer


def test_without_triton_torch_writes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "llmfw.core.kernels.kv_kernel", None)
    case = AttentionCase(make_layer(head_dim=64), [(3, 1)], 1)
    assert choose_writer([case.spec], case.storage) is KVStorage.write
    assert "Keys and values are written by torch's operators" in caplog.text
