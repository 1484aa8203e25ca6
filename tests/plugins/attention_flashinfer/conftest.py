"""FlashInfer's stand-in in FlashInfer's place, and what else a machine without a GPU lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from llmfw.core.interfaces.attention import LayerSpec
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
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stand-ins in the place of what torch lacks without a GPU; let there be few processors and little scratch."""
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    few = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: few)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr("llmfw.plugins.attention_flashinfer.scratch.RECOMMENDED_BYTES", 0)


@pytest.fixture
def flashinfer(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> type[FlashInferAttention]:
    """Put the stand-in for FlashInfer in place; return the backend that runs with it."""
    fake_flashinfer.calls.clear()
    monkeypatch.setitem(sys.modules, "flashinfer", fake_flashinfer)
    return AnywhereAttention
