"""Which attention backend is taken, and what is said of those that are not."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmfw.core.attention import AttentionBackend, LayerSpec
from llmfw.core.config import EngineConfig
from llmfw.core.engine.attention_choice import choose_attention
from llmfw.core.engine.kv_storage import KVStorage
from llmfw.core.errors import PartError
from llmfw.core.registry import Entry, Registry
from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_torch.backend import TorchAttention

CPU = torch.device("cpu")


class Broken(TorchAttention):
    """Says that it can, and then cannot be built."""

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> None:
        raise PartError("its kernels do not load")


class Picky(TorchAttention):
    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        return f"it does not run on {device}"


def entry(name: str, rank: int, found: str, *needs: str) -> Entry:
    return Entry("attention", name, f"{__name__}:{found}", "p", "d", "1", needs=needs, rank=rank)


REGISTRY = Registry(
    [
        entry("absent", 9, "Picky", "no_such_kernels"),
        entry("picky", 8, "Picky"),
        entry("broken", 7, "Broken"),
        entry("plain", 0, "TorchAttention"),
    ]
)


def choose(name: str) -> tuple[str, AttentionBackend]:
    layers = [make_layer()]
    model: Any = SimpleNamespace(layers=layers, dtype=torch.float32, architecture="Llama")
    storage = KVStorage(layers, 4, 1, torch.float32, CPU)
    return choose_attention(EngineConfig(model="m", attention=name), REGISTRY, model, CPU, storage)


def test_the_best_that_can_be_built_is_taken_and_the_others_reasons_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        name, backend = choose("auto")
    assert (name, type(backend)) == ("plain", TorchAttention)
    for reason in ("absent: needs no_such_kernels", "picky: it does not run on cpu", "broken: its kernels"):
        assert reason in caplog.text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "needs no_such_kernels, which is not installed"),
        ("picky", "it does not run on cpu"),
        ("broken", "its kernels do not load"),
    ],
)
def test_one_that_is_asked_for_and_cannot_serve_is_an_error_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(PartError, match=f"can serve Llama on cpu: {name}: {reason}"):
        choose(name)
