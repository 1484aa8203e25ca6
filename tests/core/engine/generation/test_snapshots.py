"""Models whose layers keep states reuse cached prefixes, and answer as transformers does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.engine.generation.replay import replay

from ....length import also, of_length
from ....models.tiny_config import VOCAB_SIZE
from .running import Outcome, build_engine, generate, registry
from .stateful_family import GREEDY, Family
from .tiny_models import SERVABLE, save_random_model

FAMILIES = [
    "granitemoehybrid",
    *also(
        [
            "lfm2",
            "mamba2",
            "qwen3_5_text",
            "falcon_h1",
            "jamba",
            "kimi_linear",
            "olmo_hybrid",
            "minimax",
            "zaya",
        ]
    ),
]
"""At least one for each kind of state."""
OTHERS = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2_moe", "lfm3", "nemotron_h", "bamba", "mamba")
"""Their states are of these kinds, too; they differ in projections or in experts."""

LOOSE = 1e-3
"""Tolerance for log probabilities of any prompts. Random models of Qwen3.5-MoE are 4.3e-4 off in float32, in the same
places without a prefix cache."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(request.param, tmp_path_factory.mktemp("model"))


def draw(rng: random.Random, num: int) -> list[int]:
    return [rng.randrange(2, VOCAB_SIZE) for _ in range(num)]


def answer(engine: Engine, prompt: list[int]) -> Outcome:
    """Return what comes of a prompt that is sent alone."""
    return generate(engine, [Request(id="alone", prompt=prompt, sampling=GREEDY, logprobs=0)])[0]


def cached(outcome: Outcome) -> int:
    return outcome.events[0].cached_tokens


@pytest.mark.parametrize(("chunk", "overlap", "page_size"), [(16, False, 1), (64, True, 4)])
def test_hits_of_any_length_answer_as_transformers(
    family: Family, chunk: int, overlap: bool, page_size: int
) -> None:
    check_hits(family, chunk, overlap, page_size)


@pytest.mark.long
@pytest.mark.parametrize("model_type", OTHERS)
def test_hits_of_other_families_answer_as_transformers(model_type: str, tmp_path: Path) -> None:
    check_hits(Family(model_type, tmp_path), 16, overlap=True, page_size=4)


def check_hits(family: Family, chunk: int, overlap: bool, page_size: int) -> None:
    """Prompts share any number of tokens with earlier prompts and their answers, and come at random times."""
    rng = random.Random(chunk)
    engine = family.engine(
        chunked_prefill_size=chunk, overlap=overlap, page_size=page_size, max_state_snapshots=6
    )
    texts, num_hits = [draw(rng, 70)], 0
    for turn in range(of_length(3, 6)):
        prompts = []
        for _ in range(4):
            text = rng.choice(texts)
            prompts.append(
                (text[: rng.randrange(16, len(text) + 1)] + draw(rng, rng.choice([1, 9, 30])))[:100]
            )
        requests = [
            Request(id=f"{turn} {i}", prompt=prompt, sampling=GREEDY, logprobs=0)
            for i, prompt in enumerate(prompts)
        ]
        for prompt, outcome in zip(prompts, generate(engine, requests, seed=turn), strict=True):
            family.check(prompt, outcome, LOOSE)
            num_hits += cached(outcome) > 0
            texts.append(prompt + outcome.token_ids)
    assert num_hits >= 3


@pytest.mark.parametrize("overlap", [True, *also([False])])
def test_retracted_requests_answer_as_transformers(family: Family, overlap: bool) -> None:
    rng = random.Random(1)
    shared = draw(rng, 40)
    prompts = [shared + draw(rng, num) for num in (3, 9, 17, 20, 25, 30)]
    engine = family.engine(
        chunked_prefill_size=16,
        overlap=overlap,
        max_total_tokens=150,
        schedule_conservativeness=0.01,
        max_state_snapshots=6,
    )
    requests = [
        Request(id=str(i), prompt=each, sampling=GREEDY, logprobs=0) for i, each in enumerate(prompts)
    ]
    outcomes = generate(engine, requests)
    assert engine.stats().num_retractions > 0
    for prompt, outcome in zip(prompts, outcomes, strict=True):
        family.check(prompt, outcome, LOOSE)


@pytest.mark.parametrize("overlap", [True, *also([False])])
def test_choices_compute_their_prompt_once(family: Family, overlap: bool) -> None:
    """Requests for the same prompt that come together wait for the first, and start before the last token."""
    prompt = draw(random.Random(2), 60)
    engine = family.engine(chunked_prefill_size=16, overlap=overlap, max_state_snapshots=6)
    requests = [Request(id=str(i), prompt=prompt, sampling=GREEDY, logprobs=0) for i in range(3)]
    outcomes = generate(engine, requests)
    assert [cached(outcome) for outcome in outcomes] == [0, 59, 59]
    for outcome in outcomes:
        family.check(prompt, outcome, LOOSE)


@pytest.mark.parametrize("overlap", [True, *also([False])])
def test_aborted_requests_leave_right_states(family: Family, overlap: bool) -> None:
    """A request that continues an aborted one's prompt, or its answer, starts from a right state or from none."""
    rng = random.Random(3)
    engine = family.engine(
        chunked_prefill_size=16, overlap=overlap, max_running_requests=2, max_state_snapshots=6
    )
    for num_steps in (1, 3, 9):
        prompt, tokens = draw(rng, 40), list[int]()
        engine.add(Request(id="gone", prompt=prompt, sampling=GREEDY))
        for _ in range(num_steps):
            tokens += [token for event in engine.step() for token in event.token_ids]
        engine.abort("gone")
        for further in (prompt, prompt + tokens + draw(rng, 5)):
            family.check(further, answer(engine, further), LOOSE)


def test_the_third_request_hits_a_shared_prefix(family: Family) -> None:
    rng = random.Random(4)
    shared, engine = draw(rng, 50), family.engine(chunked_prefill_size=16, max_state_snapshots=6)
    prompts = [[*shared, first, *draw(rng, 20)] for first in range(2, 6)]
    outcomes = [answer(engine, prompt) for prompt in prompts]
    assert [cached(outcome) for outcome in outcomes] == [0, 0, 50, 50]
    for prompt, outcome in zip(prompts, outcomes, strict=True):
        family.check(prompt, outcome, LOOSE)


def test_the_next_turn_starts_where_the_answer_ended(family: Family) -> None:
    rng = random.Random(5)
    engine, prompt = family.engine(chunked_prefill_size=16, max_state_snapshots=6), draw(rng, 30)
    for turn in range(3):
        outcome = answer(engine, prompt)
        assert cached(outcome) == (len(prompt) - 1 - 6 if turn else 0)
        family.check(prompt, outcome, LOOSE)
        prompt = prompt + outcome.token_ids + draw(rng, 6)


def test_recorded_steps_with_snapshots_replay(tmp_path: Path) -> None:
    family, path, rng = Family("lfm2", tmp_path / "model"), tmp_path / "steps", random.Random(6)
    engine = family.engine(chunked_prefill_size=16, record_steps=str(path), max_state_snapshots=4)
    shared = draw(rng, 30)
    outcomes = [answer(engine, [*shared, first, *draw(rng, 40)]) for first in range(2, 7)]
    assert [cached(outcome) for outcome in outcomes] == [0, 0, 30, 30, 30]
    steps = list(replay(path, registry()))
    copies = [step.recorded.step.states for step in steps]
    assert sum(len(each.slots) for each in copies) >= 2
    assert sum(len(each.sources) for each in copies) >= 3
    assert not any(step.differences for step in steps)


def test_without_snapshots_prompts_are_computed_in_full(tmp_path: Path) -> None:
    family = Family("lfm2", tmp_path)
    prompt = draw(random.Random(7), 40)
    for settings in ({"max_state_snapshots": 0}, {"disable_radix_cache": True}):
        engine = family.engine(**settings)
        assert [cached(answer(engine, prompt)) for _ in range(2)] == [0, 0]


def test_snapshots_are_refused_where_none_can_be(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--max-state-snapshots is 3; with --disable-radix-cache no prefix"
    ):
        Family("lfm2", tmp_path / "stateful").engine(max_state_snapshots=3, disable_radix_cache=True)
    folder = save_random_model(tmp_path / "plain", *SERVABLE["llama"])
    with pytest.raises(
        ConfigError, match=r"--max-state-snapshots is 3; .* keeps no states; leave the option"
    ):
        build_engine(folder, max_state_snapshots=3)


def test_mamba_1_keeps_no_snapshots_unless_asked(tmp_path: Path) -> None:
    """It computes what follows a cached prefix token by token, which can take longer than all at once."""
    family, prompt = Family("mamba", tmp_path), draw(random.Random(8), 80)
    for settings, num_cached in (({}, 0), ({"max_state_snapshots": 2}, 79)):
        engine = family.engine(**settings)
        answer(engine, prompt)
        outcome = answer(engine, prompt)
        assert cached(outcome) == num_cached
        family.check(prompt, outcome, LOOSE)


def test_too_many_snapshots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--max-state-snapshots is 1\d+, which take .*; lower it"):
        Family("mamba2", tmp_path).engine(max_state_snapshots=1 << 30)
