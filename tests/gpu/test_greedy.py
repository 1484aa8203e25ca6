"""The check of greedy tokens, on the CPU: what is right passes, and one wrong token does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ..core.engine.generation.running import GREEDY, build_engine, random_prompts, run
from ..core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model
from .greedy import assert_greedy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("model"), *SERVABLE["llama"])


def test_only_greedy_tokens_pass_the_check(folder: Path) -> None:
    prompts = random_prompts(3, VOCAB_SIZE)
    outputs = run(build_engine(folder), prompts, GREEDY, eos=())
    assert_greedy(folder, prompts, outputs, "cpu", torch.float32)
    outputs[1][5] = (outputs[1][5] + 1) % VOCAB_SIZE
    with pytest.raises(AssertionError, match="token 5"):
        assert_greedy(folder, prompts, outputs, "cpu", torch.float32)
