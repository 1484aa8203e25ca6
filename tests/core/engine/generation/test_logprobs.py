"""Log probabilities are those of the model itself, whatever else runs and however the prompt was cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import (
    MAX_LOGPROB_TOKEN_IDS,
    FinishReason,
    Request,
    SamplingParams,
    TokenLogprob,
)
from llmfw.core.step.sampling import logprobs

from ....length import also_each
from .running import GREEDY, Outcome, build_engine, generate, random_prompts
from .test_engine import DEMO, demo_prompts, demo_token
from .test_mixed_batch import check_alike
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

SHAPED = SamplingParams(
    max_tokens=24, seed=3, temperature=0.7, top_p=0.8, frequency_penalty=0.5, logit_bias={9: 4.0}
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


def check_against_transformers(folder: str, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for request, outcome in zip(requests, outcomes, strict=True):
        whole = torch.tensor([request.prompt + outcome.token_ids])
        with torch.inference_mode():
            expected = torch.log_softmax(model(whole).logits[0], dim=-1)[:-1]
        size = len(request.prompt) - 1
        if request.prompt_logprobs is not None:
            records = outcome.events[0].prompt_logprobs
            assert records is not None
            check_records(records, expected[:size], whole[0, 1 : size + 1], request.prompt_logprobs)
            check_given(records, expected[:size], request.prompt_logprob_token_ids)
        if request.logprobs is not None:
            check_records(outcome.logprobs, expected[size:], whole[0, size + 1 :], request.logprobs)
            check_given(outcome.logprobs, expected[size:], request.logprob_token_ids)


def check_records(
    records: Sequence[TokenLogprob], expected: torch.Tensor, tokens: torch.Tensor, k: int
) -> None:
    assert len(records) == len(expected)
    chosen = torch.tensor([record.logprob for record in records])
    assert torch.allclose(chosen, expected.gather(1, tokens[:, None])[:, 0], atol=1e-4)
    for record, row in zip(records, expected, strict=True):
        assert len(set(record.top_ids)) == k
        assert torch.allclose(torch.tensor(record.top_logprobs), row.topk(k).values, atol=1e-4)
        assert torch.allclose(row[record.top_ids], torch.tensor(record.top_logprobs), atol=1e-4)


def check_given(records: Sequence[TokenLogprob], expected: torch.Tensor, ids: Sequence[int]) -> None:
    for record, row in zip(records, expected, strict=True):
        assert record.given_ids == list(ids)
        assert torch.allclose(torch.tensor(record.given_logprobs), row[list(ids)], atol=1e-4)


@pytest.mark.parametrize("overlap", [False, True])
def test_demo_logprobs_equal_transformers(overlap: bool) -> None:
    eos = (demo_token("<|im_end|>"),)
    requests = [
        Request(id=str(i), prompt=prompt, sampling=sampling, eos_token_ids=eos, logprobs=k, prompt_logprobs=j)
        for i, (prompt, sampling, k, j) in enumerate(
            zip(
                demo_prompts(6),
                [GREEDY, SHAPED] * 3,
                [3, 5, 0, 1, None, 20],
                [2, 0, None, 5, 1, 2],
                strict=True,
            )
        )
    ]
    engine = build_engine(str(DEMO), chunked_prefill_size=16, overlap=overlap)
    check_against_transformers(str(DEMO), requests, generate(engine, requests))


@pytest.mark.parametrize(
    ("overlap", "page_size"), [(False, 1), (True, 16), *also_each((False, 16), (True, 1))]
)
def test_logprobs_survive_retractions(llama: Path, overlap: bool, page_size: int) -> None:
    requests = [
        Request(
            id=str(i),
            prompt=prompt,
            sampling=SHAPED,
            logprobs=2,
            prompt_logprobs=1,
            logprob_token_ids=tuple(range(i % 3 * i)),
            prompt_logprob_token_ids=(VOCAB_SIZE - 1, i, i) if i % 2 else (),
        )
        for i, prompt in enumerate(random_prompts(16, VOCAB_SIZE))
    ]
    engine = build_engine(
        llama,
        overlap=overlap,
        page_size=page_size,
        chunked_prefill_size=32,
        max_total_tokens=260,
        schedule_conservativeness=0.05,
        prefill_stretch=0,  # so that all of them start at once
    )
    outcomes = generate(engine, requests, seed=1)
    assert engine.stats().num_retractions > 0
    check_against_transformers(str(llama), requests, outcomes)


@pytest.mark.parametrize("overlap", [False, True])
def test_retraction_during_prefill_loses_no_logprobs(llama: Path, overlap: bool) -> None:
    engine = build_engine(
        llama, overlap=overlap, chunked_prefill_size=2, max_total_tokens=120, schedule_conservativeness=0.05
    )
    old = Request(id="old", prompt=[5] * 10, sampling=SamplingParams(max_tokens=100, seed=1))
    prompt = random_prompts(40, VOCAB_SIZE)[-1][:80]
    new = Request(id="new", prompt=prompt, sampling=SamplingParams(max_tokens=8), prompt_logprobs=1)
    outcomes = generate(engine, [old, new])
    assert engine.stats().num_retractions == 1
    assert outcomes[0].end.finish_reason is FinishReason.LENGTH
    check_against_transformers(str(llama), [old, new], outcomes)


@pytest.mark.parametrize("overlap", [False, True])
def test_given_tokens_have_transformers_logprobs(llama: Path, overlap: bool) -> None:
    """Requests that name different tokens, some of them twice, run with requests that name none."""
    given: list[tuple[int, ...]] = [(), (7,), (9, 4, 9), tuple(range(MAX_LOGPROB_TOKEN_IDS)), ()]
    requests = [
        Request(
            id=str(i),
            prompt=prompt,
            sampling=SHAPED,
            logprobs=[0, 3, 0, 25, None][i % 5],
            prompt_logprobs=[1, None, 0, 2, 0][i % 5],
            logprob_token_ids=given[i % 5],
            prompt_logprob_token_ids=[(), (), (VOCAB_SIZE - 1, 0), (5,), given[3]][i % 5],
        )
        for i, prompt in enumerate(random_prompts(10, VOCAB_SIZE))
    ]
    engine = build_engine(llama, overlap=overlap, chunked_prefill_size=16)
    check_against_transformers(str(llama), requests, generate(engine, requests, seed=2))


def test_constrained_requests_score_given_tokens_as_constrained(llama: Path) -> None:
    sampling = SamplingParams(max_tokens=4, seed=1, allowed_token_ids=(5, 9))
    request = Request(
        id="a",
        prompt=[3, 4],
        sampling=sampling,
        logprobs=2,
        constrained_logprobs=True,
        logprob_token_ids=(9, 5, 6),
    )
    [outcome] = generate(build_engine(llama), [request])
    for record in outcome.logprobs:
        likely = dict(zip(record.top_ids, record.top_logprobs, strict=True))
        assert record.given_logprobs == [likely[9], likely[5], -9999]


def test_prompt_logprobs_skip_but_fill_the_cache(llama: Path) -> None:
    engine = build_engine(llama)
    prompt = list(range(2, 50))
    asking = Request(id="b", prompt=prompt, sampling=GREEDY, prompt_logprobs=1)
    plain = Request(id="a", prompt=prompt, sampling=GREEDY)
    cached = [generate(engine, [request])[0].events[0].cached_tokens for request in (asking, asking, plain)]
    assert cached == [0, 0, 47]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("start", [2, 17, 60, 79])
def test_logprobs_from_a_start_are_the_last_ones(llama: Path, start: int, overlap: bool) -> None:
    engine = build_engine(llama, overlap=overlap, chunked_prefill_size=16)
    prompt = random_prompts(40, VOCAB_SIZE)[-1][:80]
    whole, late = (
        Request(id=id, prompt=prompt, sampling=GREEDY, prompt_logprobs=1, prompt_logprobs_start=first)
        for id, first in (("whole", 1), ("late", start))
    )
    every, last, cached = (generate(engine, [each])[0].events[0] for each in (whole, late, late))
    assert (last.cached_tokens, cached.cached_tokens) == (start - 1, start - 1)
    for found in (last, cached):
        check_alike(found.prompt_logprobs, every.prompt_logprobs[start - 1 :])
    assert len(last.prompt_logprobs) == 80 - start


def test_scored_endings_compute_their_prompt_once(llama: Path) -> None:
    """The requests start together: the prompt is in the cache of none of them."""
    engine = build_engine(llama, max_total_tokens=2_000)
    prompt = random_prompts(40, VOCAB_SIZE)[-1][:80]
    requests = [
        Request(
            id=str(i),
            prompt=[*prompt, i + 2, i + 3],
            sampling=GREEDY,
            prompt_logprobs=0,
            prompt_logprobs_start=80,
        )
        for i in range(16)
    ]
    outcomes = generate(engine, requests)
    assert sum(82 - each.events[0].cached_tokens for each in outcomes) == 79 + 16 * 3


def test_a_one_token_prompt_has_no_logprobs(llama: Path) -> None:
    [outcome] = generate(
        build_engine(llama), [Request(id="a", prompt=[5], sampling=GREEDY, prompt_logprobs=1)]
    )
    assert outcome.events[0].prompt_logprobs == []
    assert all(event.prompt_logprobs is None for event in outcome.events[1:])


def test_neighbors_tokens_do_not_change(llama: Path) -> None:
    prompts = random_prompts(8, VOCAB_SIZE)
    plain = [Request(id=str(i), prompt=prompt, sampling=SHAPED) for i, prompt in enumerate(prompts)]
    mixed = [
        Request(
            id=r.id, prompt=r.prompt, sampling=SHAPED, logprobs=i % 2 or None, prompt_logprobs=i % 3 or None
        )
        for i, r in enumerate(plain)
    ]
    tokens = [[o.token_ids for o in generate(build_engine(llama), requests)] for requests in (plain, mixed)]
    assert tokens[0] == tokens[1]


def test_sliced_logprobs_equal_whole_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative infinity is clamped."""
    monkeypatch.setattr(logprobs, "SLICE_ELEMENTS", 120)
    logits = torch.randn(8, 50)
    logits[2, 7] = -math.inf
    found = logprobs.RowLogprobs.of(logits, torch.full((8,), 7), 2)
    assert torch.equal(found.chosen, torch.log_softmax(logits, -1)[:, 7].clamp_min(logprobs.LOWEST))
    records = found.records([2] * 8)
    assert records[2].logprob == -9999
    assert found.top.shape == (8, 2)
    ranks = [(row >= row[7]).sum().item() for row in logits]
    assert [record.rank for record in records] == ranks


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"logprob_token_ids": (VOCAB_SIZE,), "logprobs": 0}, "logprob_token_ids", "token id 300"),
        ({"logprob_token_ids": (5,), "prompt_logprobs": 0}, "logprob_token_ids", "logprobs is not set"),
        ({"prompt_logprobs_start": 2}, "prompt_logprobs_start", "prompt_logprobs is not set"),
        ({"prompt_logprobs_start": 0, "prompt_logprobs": 0}, "prompt_logprobs_start", "must be the index"),
        ({"prompt_logprobs_start": 99, "prompt_logprobs": 0}, "prompt_logprobs_start", "must be the index"),
        ({"logprob_token_ids": (5,) * 129, "logprobs": 0}, "logprob_token_ids", "129 ids; at most 128"),
        ({"prompt_logprob_token_ids": (-1,), "prompt_logprobs": 0}, "prompt_logprob_token_ids", "id -1"),
        ({"prompt_logprob_token_ids": (5,), "logprobs": 0}, "prompt_logprob_token_ids", "is not set"),
    ],
)
def test_wrong_given_tokens_are_refused(
    llama: Path, fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        build_engine(llama).add(Request(id="a", prompt=[5], sampling=GREEDY, **fields))
    assert caught.value.param == param


@pytest.mark.parametrize("param", ["logprobs", "prompt_logprobs"])
def test_more_logprobs_than_tokens_are_refused(llama: Path, param: str) -> None:
    wrong = {param: VOCAB_SIZE + 1}
    with pytest.raises(RequestError, match="301; it must be 0 to 300") as caught:
        build_engine(llama).add(Request(id="a", prompt=[5], sampling=GREEDY, **wrong))  # type: ignore[arg-type]
    assert caught.value.param == param
