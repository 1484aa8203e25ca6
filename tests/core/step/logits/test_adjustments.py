"""Penalties, bias and bans are those of each request, whoever is beside it, and whenever it came."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.base.step import Ints
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.step_writer import count_tokens, start_row
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.logits.adjustments import Adjustments

from ....length import also

CPU = torch.device("cpu")
VOCAB_SIZE = 60
NUM_ROWS = 6


def draw_params(rng: random.Random) -> SamplingParams:
    options: dict[str, Any] = {
        "repetition_penalty": 1.3,
        "frequency_penalty": -0.4,
        "presence_penalty": 0.7,
        "logit_bias": {rng.randrange(VOCAB_SIZE): rng.uniform(-9, 9) for _ in range(rng.choice([1, 30]))},
        "min_tokens": rng.randrange(1, 30),
    }
    chosen = {name: value for name, value in options.items() if rng.random() < 0.4}
    return SamplingParams(max_tokens=200, stop_token_ids=(3, 5), **chosen)


def draw_sequence(rng: random.Random, row: int) -> SequenceState:
    prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([1, 8, 90]))]
    seq = SequenceState(Request(id=str(row), prompt=prompt, sampling=draw_params(rng)), 0)
    seq.row = row
    for _ in range(rng.choice([0, 0, 3, 80])):  # after a retraction there are some
        seq.append(rng.randrange(VOCAB_SIZE))
    return seq


def expected_of(logits: torch.Tensor, seq: SequenceState) -> torch.Tensor:
    """Return a row's logits as the formulas have them, over the whole vocabulary."""
    params = seq.request.sampling
    counts = torch.from_numpy(np.bincount(seq.output_ids, minlength=VOCAB_SIZE).astype(np.float32))
    penalty = params.repetition_penalty
    seen = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    seen[seq.token_ids] = True
    logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    logits = logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    if seq.num_output < params.min_tokens:
        logits[[3, 5]] = float("-inf")
    return logits


def columns(sequences: list[SequenceState]) -> tuple[Ints, Ints]:
    """Return rows and positions of the tokens to sample."""
    return np.array([seq.row for seq in sequences]), np.array([seq.num_tokens for seq in sequences])


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *also([2, 3])])
def test_rows_have_only_their_own_adjustments(seed: int, packs: bool) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    adjustments = Adjustments(NUM_ROWS, Staging(CPU, packs=packs), CPU)
    running: dict[int, SequenceState] = {}
    counted: dict[int, int] = {}
    for _ in range(150):
        for row in rng.sample(range(NUM_ROWS), 2):
            if rng.random() < 0.2:
                running[row] = draw_sequence(rng, row)
                counted[row] = -1
                adjustments.start(start_row(running[row]))
        chosen = rng.sample(list(running.values()), rng.randrange(len(running) + 1))
        if not chosen:
            continue
        penalized = [seq for seq in chosen if seq.request.sampling.has_penalties]
        adjustments.recount([count_tokens(seq) for seq in penalized if counted[seq.row] < seq.num_output])
        logits = torch.randn(len(chosen), VOCAB_SIZE + 4, generator=generator)[:, :VOCAB_SIZE]
        expected = torch.stack([expected_of(row, seq) for row, seq in zip(logits, chosen, strict=True)])
        applied = adjustments.apply(logits, *columns(chosen))
        assert torch.equal(logits, expected)
        tokens = torch.randint(VOCAB_SIZE, (len(chosen),), generator=generator)
        if applied is not None:
            adjustments.count(applied, tokens)
        for seq, token in zip(chosen, tokens.tolist(), strict=True):
            counted[seq.row] = seq.num_output + 1
            for forced in [token, *([7] * rng.choice([0, 0, 0, 2]))]:  # some tokens are not sampled
                seq.append(forced)


def test_masks_override_min_tokens() -> None:
    params = SamplingParams(max_tokens=9, min_tokens=5, stop_token_ids=(3, 5))
    sequences = [SequenceState(Request(id=str(row), prompt=[1], sampling=params), 0) for row in (0, 1)]
    adjustments = Adjustments(2, Staging(CPU), CPU)
    for row, seq in enumerate(sequences):
        seq.row = row
        adjustments.start(start_row(seq))
    logits = torch.zeros(2, VOCAB_SIZE)
    adjustments.apply(logits, *columns(sequences), masked=[1])
    assert (logits == float("-inf")).nonzero().tolist() == [[0, 3], [0, 5]]
