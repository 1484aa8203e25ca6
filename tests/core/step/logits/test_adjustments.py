"""Penalties, bias and bans are those of each request, whoever is beside it, and whenever it came."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.schedule.plan import PlannedSequence
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.logits.adjustments import Adjustments

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


def draw_planned(rng: random.Random, row: int) -> PlannedSequence:
    prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([1, 8, 90]))]
    seq = SequenceState(Request(id=str(row), prompt=prompt, sampling=draw_params(rng)), 0)
    for _ in range(rng.choice([0, 0, 3, 80])):  # after a retraction there are some
        seq.append(rng.randrange(VOCAB_SIZE))
    return PlannedSequence(seq, row, 0, seq.num_tokens, samples=True, is_new=True, is_prefill=True)


def expected_of(logits: torch.Tensor, planned: PlannedSequence) -> torch.Tensor:
    """Return a row's logits as the formulas have them, over the whole vocabulary."""
    seq, params = planned.seq, planned.seq.request.sampling
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


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_and_go_have_their_own_changes_and_no_others(seed: int, packs: bool) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    adjustments = Adjustments(NUM_ROWS, Staging(CPU, packs=packs), CPU)
    running: dict[int, PlannedSequence] = {}
    for _ in range(150):
        for row in rng.sample(range(NUM_ROWS), 2):
            if rng.random() < 0.2:
                running[row] = draw_planned(rng, row)
                adjustments.start(running[row])
        planned = rng.sample(list(running.values()), rng.randrange(len(running) + 1))
        if not planned:
            continue
        logits = torch.randn(len(planned), VOCAB_SIZE + 4, generator=generator)[:, :VOCAB_SIZE]
        expected = torch.stack([expected_of(row, p) for row, p in zip(logits, planned, strict=True)])
        penalised = adjustments.apply(logits, planned, np.array([p.row for p in planned]))
        assert torch.equal(logits, expected)
        tokens = torch.randint(VOCAB_SIZE, (len(planned),), generator=generator)
        if penalised is not None:
            adjustments.count(penalised, tokens)
        for p, token in zip(planned, tokens.tolist(), strict=True):
            for forced in [token, *([7] * rng.choice([0, 0, 0, 2]))]:  # some tokens are not sampled
                p.seq.append(forced)
                p.count += 1


def test_a_mask_says_itself_whether_the_end_may_come() -> None:
    params = SamplingParams(max_tokens=9, min_tokens=5, stop_token_ids=(3,))
    planned = [draw_planned(random.Random(0), row) for row in (0, 1)]
    for p in planned:
        p.seq.request = msgspec.structs.replace(p.seq.request, sampling=params)
        p.seq.output.clear()
        p.count = p.seq.prompt_len
    adjustments = Adjustments(2, Staging(CPU), CPU)
    for p in planned:
        adjustments.start(p)
    logits = torch.zeros(2, VOCAB_SIZE)
    adjustments.apply(logits, planned, np.arange(2), masked=[1])
    assert (logits == float("-inf")).nonzero().tolist() == [[0, 3], [0, 5]]
