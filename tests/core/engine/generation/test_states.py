"""Models whose layers keep states answer as transformers does, however their prompts are cut and packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.replay import replay

from ....length import also
from ....models.trial import prompts
from .running import generate, registry
from .stateful_family import GREEDY, NUM_TOKENS, Family

FAMILIES = [
    *("qwen3_5_text", "lfm2"),  # a recurrence, and a convolution; test_snapshots.py has one with both
    *also(
        [
            *(
                "granitemoehybrid",
                "mamba2",
                "qwen3_5",
                "qwen3_5_moe",
                "qwen3_next",
                "lfm2_moe",
                "lfm3",
                "falcon_h1",
                "nemotron_h",
                "bamba",
            ),
            *("jamba", "mamba", "falcon_mamba", "kimi_linear", "olmo_hybrid", "minimax", "zaya"),
            *("zamba", "zamba2"),
        ]
    ),
]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(request.param, tmp_path_factory.mktemp("model"))


def _requests(sampling: SamplingParams = GREEDY) -> list[Request]:
    return [
        Request(id=str(i), prompt=prompt, sampling=sampling, logprobs=0) for i, prompt in enumerate(prompts())
    ]


@pytest.mark.parametrize(("chunk", "overlap"), [(16, False), (64, True)])
def test_answers_equal_those_of_transformers(family: Family, chunk: int, overlap: bool) -> None:
    """Six prompts of 1 to 70 tokens come at random times, while others decode."""
    engine = family.engine(chunked_prefill_size=chunk, overlap=overlap, page_size=4)
    for prompt, outcome in zip(prompts(), generate(engine, _requests(), seed=chunk), strict=True):
        family.check(prompt, outcome)


def test_retraction_computes_states_anew(family: Family) -> None:
    engine = family.engine(
        chunked_prefill_size=16, overlap=True, max_total_tokens=150, schedule_conservativeness=0.01
    )
    outcomes = generate(engine, _requests())
    assert engine.stats().num_retractions > 0
    for prompt, outcome in zip(prompts(), outcomes, strict=True):
        family.check(prompt, outcome)


def test_choices_of_a_prompt_keep_apart(family: Family) -> None:
    """Each sampled choice equals the one that its seed gives alone."""
    engine = family.engine(chunked_prefill_size=16, overlap=False)
    prompt = prompts()[3]

    def choices(seeds: range) -> list[list[int]]:
        sampled = [
            SamplingParams(temperature=1, seed=seed, max_tokens=NUM_TOKENS, ignore_eos=True) for seed in seeds
        ]
        requests = [
            Request(id=f"{seeds} {i}", prompt=prompt, sampling=each) for i, each in enumerate(sampled)
        ]
        return [outcome.token_ids for outcome in generate(engine, requests)]

    together = choices(range(3))
    assert together == [choices(range(seed, seed + 1))[0] for seed in range(3)]
    assert len(set(map(tuple, together))) == 3


def test_aborted_states_do_not_reach_others(family: Family) -> None:
    """A slot whose request was aborted in its prompt, or in its reply, starts anew."""
    engine = family.engine(chunked_prefill_size=16, overlap=True, max_running_requests=2)
    for name, prompt, num_steps in (("reply", prompts()[0], 4), ("prompt", prompts()[3], 2)):
        engine.add(Request(id=name, prompt=prompt, sampling=GREEDY))
        for _ in range(num_steps):
            engine.step()
        engine.abort(name)
    while engine.has_work:
        engine.step()
    for prompt, outcome in zip(prompts(), generate(engine, _requests()), strict=True):
        family.check(prompt, outcome)


def test_recorded_steps_with_states_replay(tmp_path: Path) -> None:
    family, path = Family("lfm2", tmp_path / "model"), tmp_path / "steps"
    engine = family.engine(chunked_prefill_size=16, record_steps=str(path))
    generate(engine, _requests(), seed=3)
    steps = list(replay(path, registry()))
    assert steps
    assert not any(step.differences for step in steps)


def test_drafts_are_refused_for_states(tmp_path: Path) -> None:
    family = Family("lfm2", tmp_path)
    with pytest.raises(ConfigError, match=r"--drafter is prompt-lookup; .* leave the option out"):
        family.engine(drafter="prompt-lookup")


def test_too_many_states_are_refused(tmp_path: Path) -> None:
    family = Family("mamba2", tmp_path)
    with pytest.raises(
        ConfigError, match=r"the states of .* sequences take .*; lower --max-running-requests"
    ):
        family.engine(max_running_requests=1 << 24, max_total_tokens=None)
