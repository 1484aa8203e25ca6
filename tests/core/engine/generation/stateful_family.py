"""Tiny random models whose layers keep states, and transformers' answers of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from llmfw.core.base.request import SamplingParams
from llmfw.core.engine.generation.engine import Engine

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config
from ....models.trial import reference_logprobs
from .running import Outcome, build_engine

TOLERANCE = 1e-4
NUM_TOKENS = 16
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


class Family:
    """A tiny random model, and transformers' answers of it, in float64.

    In float32, transformers' own log probabilities of Qwen3.5 can be off by 1.3e-4.

    Args:
        model_type: transformers' name of the family.
        folder: folder for the checkpoint.
        changes: fields of the config that differ.
    """

    def __init__(self, model_type: str, folder: Path, **changes: Any) -> None:
        self.folder = save_checkpoint(tiny_config(model_type, **changes), folder)
        reference: nn.Module = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, experts_implementation="eager"
        )
        self._reference = reference.eval()

    def engine(self, **settings: Any) -> Engine:
        return build_engine(
            self.folder, **({"context_length": 128, "max_running_requests": 8, "grammar": "none"} | settings)
        )

    def check(self, prompt: list[int], outcome: Outcome, tolerance: float = TOLERANCE) -> None:
        """Assert that tokens are transformers' greedy ones.

        Args:
            tolerance: largest difference of their log probabilities.
        """
        tokens = outcome.token_ids
        expected = reference_logprobs(self._reference, prompt + tokens)[len(prompt) - 1 : -1]
        assert len(tokens) == NUM_TOKENS
        own = torch.tensor([record.logprob for record in outcome.logprobs])
        chosen = expected.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        assert float((own - chosen).abs().max()) <= tolerance
        assert float((expected.max(dim=1).values - chosen).max()) <= TOLERANCE
