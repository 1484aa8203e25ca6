"""A plugin that changes torch's defaults while the server runs spoils no later step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from llmfw.core.base.request import SamplingParams
from llmfw.core.step.torch_defaults import TorchDefaults

from ..engine.generation.running import build_engine, random_prompts, run
from ..engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

CHANGES: list[Callable[[], None]] = [
    lambda: torch.set_default_dtype(torch.float64),
    lambda: torch.set_default_dtype(torch.float16),
    lambda: torch.set_default_device("meta"),
]
SAMPLING = [
    SamplingParams(temperature=0, max_tokens=8),
    SamplingParams(temperature=1, seed=3, max_tokens=8, top_k=5, top_p=0.9, min_p=0.01),
    SamplingParams(
        temperature=1, seed=4, max_tokens=8, repetition_penalty=1.2, presence_penalty=0.5, logit_bias={3: 2.0}
    ),
]


@pytest.fixture(autouse=True)
def torch_as_before() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@pytest.mark.parametrize("change", CHANGES)
def test_changed_defaults_are_restored_and_logged_once(
    change: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    defaults = TorchDefaults(lambda: "policy 'mine'")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            change()
            defaults.restore()
            assert torch.get_default_dtype() == torch.float32
            assert torch.get_default_device().type == "cpu"
    [record] = caplog.records
    assert record.getMessage().startswith("The code of policy 'mine' changed torch's default d")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("passes", ["auto", "none"])
def test_steps_do_not_depend_on_the_defaults(
    change: Callable[[], None], passes: str, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without the check before each step: llmfw's own code names dtype and device."""
    monkeypatch.setattr(TorchDefaults, "restore", lambda self: None)
    prompts = random_prompts(3, VOCAB_SIZE, seed=1)
    right = run(build_engine(llama, module_passes=passes), prompts, SAMPLING)
    engine = build_engine(llama, module_passes=passes)
    change()
    assert run(engine, prompts, SAMPLING) == right
