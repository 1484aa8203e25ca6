"""Log probabilities of what a request's constraints leave, next to requests that want the model's own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llmfw.core.base.request import Request, SamplingParams

from .running import build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model


@pytest.mark.parametrize("overlap", [False, True])
def test_forbidden_tokens_have_zero_probability(tmp_path: Path, overlap: bool) -> None:
    llama = save_random_model(tmp_path, *SERVABLE["llama"])
    [prompt] = random_prompts(1, VOCAB_SIZE)
    sampling = SamplingParams(max_tokens=8, seed=1, temperature=3.0, allowed_token_ids=(5, 9))
    requests = [
        Request(id=str(i), prompt=prompt, sampling=sampling, logprobs=2, constrained_logprobs=bool(i % 2))
        for i in range(3)
    ]
    own, constrained, again = generate(build_engine(llama, overlap=overlap), requests)
    assert own.token_ids == constrained.token_ids == again.token_ids
    assert own.logprobs == again.logprobs
    for record, raw in zip(constrained.logprobs, own.logprobs, strict=True):
        assert set(record.top_ids) == {5, 9}
        assert sum(map(math.exp, record.top_logprobs)) == pytest.approx(1, abs=1e-5)
        assert record.logprob > raw.logprob
