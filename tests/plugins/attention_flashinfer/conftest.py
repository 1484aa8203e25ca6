"""FlashInfer's stand-in in FlashInfer's place, and what else a machine without a GPU lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from llmfw.core.attention import LayerSpec
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention, unsupported_layers

from . import fake_flashinfer


class AnywhereAttention(FlashInferAttention):
    """The backend, allowed on any device and in any dtype: those of the stand-in."""

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        return unsupported_layers(layers)


class FakeEvent:
    """An event that has always happened; says among the calls when it is recorded and waited for."""

    def record(self) -> None:
        fake_flashinfer.calls.append(("record", {}))

    def synchronize(self) -> None:
        fake_flashinfer.calls.append(("wait", {}))


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> type[FlashInferAttention]:
    """Put the stand-ins in place; return the backend that runs with them."""
    fake_flashinfer.calls.clear()
    monkeypatch.setitem(sys.modules, "flashinfer", fake_flashinfer)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    few = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: few)
    monkeypatch.setattr("llmfw.plugins.attention_flashinfer.scratch.RECOMMENDED_BYTES", 0)
    return AnywhereAttention
