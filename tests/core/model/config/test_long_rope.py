"""With `longrope`, all sequences use the long factors if the context exceeds the original length."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.model.attention.plain_attention import PlainStep
from llmfw.core.model.config.long_rope import take_long_factors
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import run_packed
from llmfw.core.plugin.registry import Registry

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config
from ....models.trial import load_reference, reference_logprobs

ORIGINAL, LONGEST = 64, 128
ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": ORIGINAL,
    "short_factor": [1.0 + i / 10 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
    "partial_rotary_factor": 1.0,
}
SIZES: dict[str, Any] = {"max_position_embeddings": LONGEST, "original_max_position_embeddings": ORIGINAL}
IDS = [(7 * i * i + 5) % 300 for i in range(90)]


@pytest.fixture(scope="module")
def phi3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config("phi3", rope_parameters=ROPE, **SIZES)
    return save_checkpoint(config, tmp_path_factory.mktemp("phi3"))


def served_logprobs(folder: Path, context_length: int | None, *lengths: int) -> list[torch.Tensor]:
    """Return the log probabilities of sequences that start alike, computed in rows of their own."""
    config = EngineConfig(model=str(folder), dtype="float32", device="cpu", context_length=context_length)
    model = load_model(config, torch.device("cpu"), Registry())
    assert model.context_length == (context_length or LONGEST)
    return [
        run_packed(model.module, [IDS[:length]], PlainStep(model.layers, [length])).log_softmax(-1)
        for length in lengths
    ]


@pytest.mark.parametrize("context_length", [None, LONGEST, ORIGINAL + 1])
def test_all_sequences_use_the_long_factors(
    phi3: Path, context_length: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A short one has the numbers that transformers has for it as the start of a long one."""
    caplog.set_level(logging.INFO)
    expected = reference_logprobs(load_reference(phi3), IDS)
    for found in served_logprobs(phi3, context_length, 20, 64, 65, 90, 20):
        torch.testing.assert_close(found, expected[: len(found)], atol=1e-4, rtol=0)
    assert sum("all sequences use the long factors" in text for text in caplog.messages) == 1


def test_short_contexts_use_the_short_factors(phi3: Path) -> None:
    reference = load_reference(phi3)
    for found in served_logprobs(phi3, ORIGINAL, 20, 64):
        expected = reference_logprobs(reference, IDS[: len(found)])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_the_models_limit_still_holds(phi3: Path) -> None:
    with pytest.raises(ConfigError, match=r"--context-length is 129; .* 2 to 128 tokens"):
        served_logprobs(phi3, LONGEST + 1)


def test_phimoe_stays_at_its_original_length(tmp_path: Path) -> None:
    """Its code scales long sequences by another number, and keeps the short factors."""
    rope = ROPE | {"short_mscale": 1.1, "long_mscale": 1.2}
    folder = save_checkpoint(tiny_config("phimoe", rope_parameters=rope, **SIZES), tmp_path)
    config = EngineConfig(model=str(folder), dtype="float32", device="cpu")
    assert load_model(config, torch.device("cpu"), Registry()).context_length == ORIGINAL


def test_code_that_chooses_otherwise_is_refused(phi3: Path) -> None:
    model: Any = load_reference(phi3)
    rotary = model.model.rotary_emb

    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frequencies = 1.0 / (1.0 + torch.arange(8)) / (1 + (position_ids.max() > ORIGINAL))
        angles = position_ids[..., None] * frequencies
        return angles.cos(), angles.sin()

    rotary.forward = forward
    for each in (model, nn.Linear(1, 1)):  # the second has no rotary embeddings
        with pytest.raises(ModelError, match=r"give --context-length 64 or less"):
            take_long_factors(each, model.config, LONGEST)
