"""What the engine counts, compared with what it was asked for and what it sent."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from llmfw.core.base.request import Request, SamplingParams

from .running import build_engine, random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

SAMPLING = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@pytest.mark.parametrize("overlap", [False, True])
def test_counts_are_those_of_the_outputs(llama: Path, overlap: bool) -> None:
    prompts = random_prompts(6, VOCAB_SIZE)
    engine = build_engine(llama, overlap=overlap, max_total_tokens=300, schedule_conservativeness=0.05)
    begun = time.perf_counter()
    outputs = run(engine, prompts, SAMPLING, eos=())
    took = time.perf_counter() - begun
    stats = engine.stats()
    num_output = sum(map(len, outputs))
    assert stats.num_prompt_tokens == sum(map(len, prompts))
    assert stats.num_generated_tokens == num_output
    assert stats.live_gaps is not None
    assert stats.deferrable_gaps is not None
    assert sum(stats.live_gaps.counts) == num_output - len(prompts)
    assert sum(stats.deferrable_gaps.counts) == 0
    assert 0 < stats.live_gaps.seconds <= len(prompts) * took
    seconds = msgspec.structs.astuple(stats.step_seconds)
    assert all(each > 0 for each in seconds)
    assert sum(seconds) <= took
    assert stats.num_steps >= max(map(len, outputs))


def test_cached_prompts_and_evictions_are_counted(llama: Path) -> None:
    [prompt] = random_prompts(1, VOCAB_SIZE)[:1]
    prompt = (prompt * 64)[:64]
    engine = build_engine(llama, max_total_tokens=300)
    for _ in range(2):
        run(engine, [prompt], SAMPLING, eos=())
    stats = engine.stats()
    assert (stats.num_prompt_tokens, stats.num_prompt_cached) == (128, 63)
    assert stats.num_evicted_tokens == 0
    run(engine, [[7 + i] * 200 for i in range(3)], SAMPLING, eos=())
    assert engine.stats().num_evicted_tokens > 0


def test_deferrable_requests_have_gaps_of_their_own(llama: Path) -> None:
    engine = build_engine(llama)
    engine.add(Request(id="a", prompt=[5, 6, 7], sampling=SAMPLING, deferrable=True))
    while engine.has_work:
        engine.step()
    stats = engine.stats()
    assert stats.deferrable_gaps is not None
    assert stats.live_gaps is not None
    assert (sum(stats.deferrable_gaps.counts), sum(stats.live_gaps.counts)) == (11, 0)


def test_drafted_output_is_what_drafts_saved(llama: Path) -> None:
    engine = build_engine(llama, drafter="prompt-lookup", draft_batch_tokens=32)
    sampling = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, logit_bias={9: 100.0})
    [output] = run(engine, [[9] * 20], sampling, eos=())
    stats = engine.stats()
    assert len(output) == 60
    assert stats.num_drafted_output > 20
    assert stats.live_gaps is not None
    assert stats.num_drafted_output == 60 - 1 - sum(stats.live_gaps.counts)
