"""An engine holds its device while it is built and in each step; the engine process uses it throughout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import EmbedRequest, Request, SamplingParams
from llmfw.core.engine.embedding import embedding_engine
from llmfw.core.engine.embedding.encoder import Encoder
from llmfw.core.engine.generation import build, engine
from llmfw.core.engine.process import process
from llmfw.core.step.executor import Executor

from ..embedding.encoders import build as build_encoder
from ..embedding.encoders import save_encoder
from ..generation.running import build_engine
from ..generation.tiny_models import SERVABLE, save_random_model


class Held:
    """Stands in for `on_device`: counts who holds the device, and how often."""

    def __init__(self) -> None:
        self.now = self.total = 0

    def __call__(self, device: torch.device) -> Held:
        assert device == torch.device("cpu")
        return self

    def __enter__(self) -> None:
        self.now += 1
        self.total += 1

    def __exit__(self, *error: object) -> None:
        self.now -= 1

    def during(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which fails outside of a hold."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            assert self.now == 1
            return function(*args, **kwargs)

        return wrapped


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    for module in (build, engine, embedding_engine):
        monkeypatch.setattr(module, "on_device", held)
    monkeypatch.setattr(build, "load_model", held.during(build.load_model))
    for name in ("__init__", "forward", "sample"):
        monkeypatch.setattr(Executor, name, held.during(getattr(Executor, name)))
    monkeypatch.setattr(Encoder, "encode", held.during(Encoder.encode))
    return held


def test_a_generating_engine_holds_its_device(held: Held, tmp_path: Path) -> None:
    built = build_engine(save_random_model(tmp_path, *SERVABLE["llama"]))
    assert (held.now, held.total) == (0, 1)
    built.add(Request(id="a", prompt=[5, 6], sampling=SamplingParams(max_tokens=3, temperature=0)))
    steps = 0
    while built.has_work:
        built.step()
        steps += 1
    assert (held.now, held.total) == (0, 1 + steps)


def test_an_embedding_engine_holds_its_device(held: Held, tmp_path: Path) -> None:
    built = build_encoder(save_encoder(tmp_path, "BertConfig", "cls_token"))
    built.add(EmbedRequest(id="a", prompts=[[5, 6]]))
    assert built.step()
    assert (held.now, held.total) == (0, 2)


def test_the_engine_process_uses_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device stays current after the engine is built, and is chosen before."""
    calls: list[object] = []
    devices = "llmfw.core.model.device.devices"
    monkeypatch.setattr(f"{devices}.choose_device", lambda asked, place: torch.device(asked))
    monkeypatch.setattr(f"{devices}.use_device", calls.append)

    def build_fails(*_: object) -> None:
        calls.append("build")
        raise ZeroDivisionError

    monkeypatch.setattr("llmfw.core.engine.process.build.build_engine", build_fails)
    with pytest.raises(ZeroDivisionError):
        process._build(EngineConfig(model="m", device="cuda:1"))
    assert calls == [torch.device("cuda", 1), "build"]
