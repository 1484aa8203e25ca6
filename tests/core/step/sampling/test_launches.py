"""A step's sampling takes as many operators for many rows as for few, and reads nothing back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from llmfw.core.base.request import SamplingParams
from llmfw.core.base.step import TokenMasks
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.sampling.logprobs import RowLogprobs
from llmfw.core.step.sampling.sampler import Sampler
from llmfw.plugins.sampling_torch.sampler import TorchSampler

from ....doubles.watching import Watching, no_other_copies
from .sampled_rows import SampledRow, positions_of, rows_of

VOCAB_SIZE = 1600
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"top_k": 20, "top_p": 0.9},
    {"top_p": 0.9},
    {"min_p": 0.1, "repetition_penalty": 1.2},
    {"top_k": 1500, "top_p": 0.8, "frequency_penalty": 0.3},
    {"presence_penalty": 0.2, "temperature": 0},
    {"logit_bias": {5: 3.0, 9: -100.0}},
    {"min_tokens": 50},
    {"min_tokens": 50, "logit_bias": {5: 3.0}, "repetition_penalty": 0.9, "top_p": 0.5, "min_p": 0.01},
]


def planned_rows(kinds: Sequence[dict[str, Any]]) -> list[SampledRow]:
    return [
        SampledRow.of(
            SamplingParams(max_tokens=100, seed=row, stop_token_ids=(3,), **kind), row, [1, *range(row % 7)]
        )
        for row, kind in enumerate(kinds)
    ]


def run_steps(kinds: Sequence[dict[str, Any]], device: str, num_steps: int = 2) -> list[int]:
    """Sample a few steps without telling the host of tokens; return how many operators each of them took."""
    where = torch.device(device)
    planned = planned_rows(kinds)
    with torch.inference_mode():
        drawing = TorchSampler(VOCAB_SIZE, where, may_wait=False)
        sampler = Sampler(len(planned), VOCAB_SIZE, where, drawing, Staging(where, packs=True))
        places = tuple(range(0, len(planned), 3))
        rows, positions = rows_of(planned), positions_of(planned)
        masks = TokenMasks(places, np.full((len(places), -(-VOCAB_SIZE // 32)), -1, dtype=np.int32))
        for p in planned:
            sampler.start(p.start)
        sampler.recount([p.counts for p in planned if p.counts is not None])
        counts = []
        for _ in range(num_steps):
            logits = torch.zeros((len(planned), VOCAB_SIZE), device=where)
            with no_other_copies(), Watching() as watching:
                tokens = sampler.sample(logits, rows, positions, masks)
                RowLogprobs.of(logits, tokens, 20)
            assert not watching.waits
            assert tokens.shape == (len(planned),)
            counts.append(watching.num_operators)
            positions = positions + 1  # the token is known to the device alone
    return counts


def test_launch_counts_do_not_grow_with_rows() -> None:
    few, many = (run_steps(KINDS * times, "cpu") for times in (1, 5))
    assert few == many


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_launch_counts_do_not_depend_on_rows(kind: dict[str, Any]) -> None:
    assert run_steps([kind] * 4, "cpu") == run_steps([kind] * 20, "cpu")


def test_sampling_reads_no_device_values() -> None:
    run_steps(KINDS, "meta")  # where tensors have none: what reads one raises
