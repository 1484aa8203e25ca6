"""Masks change their own rows and no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.request import SamplingParams
from llmfw.core.base.step import TokenMasks
from llmfw.core.schedule.constraint import allow, forbid
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.logits.masking import apply_masks
from llmfw.core.step.sampling.sampler import Sampler
from llmfw.plugins.sampling_torch.sampler import TorchSampler

from ..sampling.sampled_rows import SampledRow, positions_of, rows_of
from ..sampling.test_sampler import CPU, plan

VOCAB_SIZE = 70


def masks(places: Sequence[int], allowed: Sequence[set[int]]) -> TokenMasks:
    words = np.zeros((len(places), -(-VOCAB_SIZE // 32)), dtype=np.int32)
    for row, tokens in zip(words, allowed, strict=True):
        for token in tokens:
            allow(row, token)
    return TokenMasks(tuple(places), words)


tokens = st.sets(st.integers(0, VOCAB_SIZE - 1), min_size=1)


@given(st.dictionaries(st.integers(0, 4), tokens, min_size=1))
def test_masks_change_only_disallowed_logits(
    allowed: dict[int, set[int]],
) -> None:
    logits = torch.randn(5, VOCAB_SIZE)
    expected = logits.clone()
    for place, kept in allowed.items():
        expected[place, sorted(set(range(VOCAB_SIZE)) - kept)] = -torch.inf
    apply_masks(masks(list(allowed), list(allowed.values())), logits, Staging(CPU))
    assert torch.equal(logits, expected)


@given(tokens, tokens)
def test_bits_are_set_and_cleared_individually(allowed: set[int], forbidden: set[int]) -> None:
    words = masks([0], [allowed]).words[0]
    forbid(words, sorted(forbidden))
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits).tolist()) == allowed - forbidden


@given(st.integers(0, 2**31), tokens)
def test_a_mask_does_not_affect_neighboring_rows(seed: int, allowed: set[int]) -> None:
    kinds = [
        {},
        {"top_k": 3},
        {"top_p": 0.5},
        {"temperature": 0.0},
        {"min_p": 0.3},
        {"repetition_penalty": 2.0},
    ]
    planned = [plan(SamplingParams(seed=seed + i, **kind), row=i) for i, kind in enumerate(kinds)]
    logits = torch.randn(6, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))
    free = sample(logits, planned, None)
    for place in range(6):
        found = sample(logits, planned, masks([place], [allowed]))
        assert found.pop(place) in allowed
        assert found == free[:place] + free[place + 1 :]


def sample(logits: torch.Tensor, planned: Sequence[SampledRow], given: TokenMasks | None) -> list[int]:
    sampler = Sampler(6, VOCAB_SIZE, CPU, TorchSampler(VOCAB_SIZE, CPU, may_wait=True))
    for p in planned:
        sampler.start(p.start)
    sampler.recount([p.counts for p in planned if p.counts is not None])
    found: list[int] = sampler.sample(logits.clone(), rows_of(planned), positions_of(planned), given).tolist()
    return found
