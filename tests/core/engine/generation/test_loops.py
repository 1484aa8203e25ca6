"""A request's text does not depend on which of the two loops runs, whatever it asks for and whatever else runs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from llmfw.core.base.request import FinishReason, GrammarSpec, Request, SamplingParams, Thinking
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....length import also
from .running import Outcome, build_engine, generate, registry
from .test_mixed_batch import check_alike
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

EOS = 1
NUM_REQUESTS = 8
QUICK = (1, 3, 6)
EXACT = "float16"
"""Means float64 here: the last bits of float32 depend on the batch, and here and there two tokens are as near as that."""
TWO_LAYERS = {"num_hidden_layers": 2}
"""As few as keys of a layer can depend on the layer before it with."""
TEXTS = ("red", "green", "greenhouse", '{"answer": "yes"}', '{"answer": "no", "reason": "none"}')
GRAMMARS = (one_of(*TEXTS), one_of("only this"), one_of(*TEXTS, breaks_at=4), one_of(*TEXTS, mask="raises"))
THINKING = (
    Thinking(begin=(2,), end=(3, 4), budget=6),
    Thinking(end=(3,), is_open=True, budget=3),
    Thinking(end=(3, 4), is_open=True, budget=0),
    Thinking(end=(5,), is_open=True),
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config_class, changes = SERVABLE["llama"]
    folder = save_random_model(tmp_path_factory.mktemp("llama"), config_class, changes | TWO_LAYERS)
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


def draw_requests(rng: random.Random) -> list[Request]:
    """Return requests that ask for anything; some share a prompt, as the choices of one request do."""
    prompts = [draw_prompt(rng, []) for _ in range(3)]
    prompts += [draw_prompt(rng, prompts) for _ in range(NUM_REQUESTS - 3)]
    return [draw_request(rng, str(i), prompt) for i, prompt in enumerate(prompts)]


def draw_prompt(rng: random.Random, others: Sequence[list[int]]) -> list[int]:
    own = [rng.randrange(2, VOCAB_SIZE) for _ in range(rng.choice([1, 5, 17, 40, 130]))]
    begun = rng.choice(others)[: rng.choice([16, 40, 200])] if others and rng.random() < 0.6 else []
    return begun if begun and rng.random() < 0.3 else (begun + own)[:200]


def draw_request(rng: random.Random, name: str, prompt: list[int]) -> Request:
    grammar: GrammarSpec | None = rng.choice(GRAMMARS) if rng.random() < 0.4 else None
    max_tokens = rng.choice([1, 2, 12, 40])
    some = [rng.randrange(VOCAB_SIZE) for _ in range(20)]
    options: dict[str, Any] = {
        "temperature": [0, 0.6, 1.5],
        "top_k": [1, 8],
        "top_p": [0.5, 0.9],
        "min_p": [0.1],
        "presence_penalty": [0.7],
        "frequency_penalty": [-0.4, 1.2],
        "repetition_penalty": [0.8, 1.4],
        "logit_bias": [{7: 4.0}, {2: 100.0}, dict.fromkeys(some, -100.0)],
        "min_tokens": [1, max_tokens // 2, max_tokens],
        "stop_token_ids": [tuple(some), (3,)],
    }
    chosen = {key: rng.choice(values) for key, values in options.items() if rng.random() < 0.3}
    request = Request(
        id=name,
        prompt=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, seed=rng.randrange(1000), **chosen),
        eos_token_ids=(EOS,) if grammar is not None or rng.random() < 0.7 else (),
        priority=rng.randrange(3),
        logprobs=rng.choice([None, None, 0, 3]),
        prompt_logprobs=rng.choice([None, None, None, 1]),
        grammar=grammar,
        thinking=rng.choice(THINKING) if rng.random() < 0.3 else None,
        deferrable=rng.random() < 0.3,
        tenant=rng.choice(["", "a", "b"]),
    )
    return msgspec.structs.replace(
        request,
        logprob_token_ids=tuple(some) if request.logprobs == 0 else (),
        prompt_logprob_token_ids=tuple(some[:2]) if request.prompt_logprobs is not None else (),
    )


def draw_settings(rng: random.Random) -> dict[str, Any]:
    return {
        "policy": rng.choice(sorted(registry().names("policy"))),
        "page_size": rng.choice([1, 16]),
        "chunked_prefill_size": rng.choice([8, 48, -1]),
        "max_prefill_tokens": 64,
        "max_total_tokens": rng.choice([None, 272, 600]),
        "max_running_requests": rng.choice([2, 32]),
        "disable_radix_cache": rng.random() < 0.2,
        "batch_share": rng.choice([0.0, 0.5]),
        "prefill_stretch": rng.choice([0.0, 1.5]),
        "schedule_conservativeness": rng.choice([0.05, 1.0]),
    }


def play(engine: Engine, requests: Sequence[Request], rng: random.Random) -> dict[str, Outcome]:
    """Return what came of requests that come, and here and there are aborted, at random times."""
    outcomes = {request.id: Outcome() for request in requests}
    to_come, running, aborted = list(requests), list[str](), set[str]()
    while to_come or engine.has_work or engine.stats().num_waiting:
        if to_come and (rng.random() < 0.2 or not engine.has_work):
            running.append(to_come[0].id)
            engine.add(to_come.pop(0))
        if running and rng.random() < 0.02:
            aborted.add(name := rng.choice(running))
            engine.abort(name)
        if not engine.has_work:
            time.sleep(0.0005)  # a grammar is being compiled
            continue
        for event in engine.step():
            assert event.id not in aborted
            assert not (outcomes[event.id].events and outcomes[event.id].end.finish_reason)
            outcomes[event.id].events.append(event)
    ended = {name for name, outcome in outcomes.items() if outcome.events and outcome.end.finish_reason}
    assert aborted | ended == set(outcomes)
    return outcomes


def check(found: Outcome, expected: Outcome) -> None:
    """Check that a request gave what it gives alone, or, if it was aborted, the beginning of that."""
    if not found.events or found.end.finish_reason is None:
        assert found.token_ids == expected.token_ids[: len(found.token_ids)]
        return
    assert found.token_ids == expected.token_ids
    assert found.end.finish_reason is expected.end.finish_reason
    assert (found.end.error, found.end.error_kind) == (expected.end.error, expected.end.error_kind)
    check_alike(found.logprobs, expected.logprobs)
    check_alike(found.events[0].prompt_logprobs, expected.events[0].prompt_logprobs)


def check_loops(llama: Path, seed: int) -> None:
    rng = random.Random(seed)
    requests, settings = draw_requests(rng), draw_settings(rng)
    engine = build_engine(llama, disable_radix_cache=True, dtype=EXACT)
    alone = {request.id: generate(engine, [request])[0] for request in requests}
    for overlap in (False, True):
        engine = build_engine(llama, overlap=overlap, dtype=EXACT, **settings)
        for name, found in play(engine, requests, rng).items():
            check(found, alone[name])


@pytest.mark.parametrize("seed", [*QUICK, *also([2, 9])])
def test_both_loops_give_the_text_of_single_runs(llama: Path, seed: int) -> None:
    check_loops(llama, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_both_loops_agree_in_many_more_mixes(llama: Path, seed: int) -> None:
    check_loops(llama, seed)


def test_the_drawn_mixes_cover_all_features() -> None:
    """What the checks above draw, counted: they would not be worth much if they missed one of these."""
    generators = [random.Random(seed) for seed in QUICK]
    drawn = [request for rng in generators for request in draw_requests(rng)]
    sampled = [request.sampling for request in drawn]
    assert sum(s.frequency_penalty != 0 or s.repetition_penalty != 1 for s in sampled) > 2
    assert sum(bool(s.logit_bias) for s in sampled) > 2
    assert sum(s.min_tokens > 1 for s in sampled) > 2
    assert sum(bool(s.stop_token_ids) for s in sampled) > 2
    assert sum(r.grammar is not None and r.thinking is not None for r in drawn) > 2
    assert sum(r.logprobs is not None and r.grammar is not None for r in drawn) > 2
    assert sum(r.deferrable for r in drawn) > 2
    assert len({tuple(r.prompt) for r in drawn}) < len(drawn)
    assert {draw_settings(rng)["chunked_prefill_size"] for rng in generators} == {8, 48, -1}


@pytest.mark.parametrize("overlap", [False, True])
def test_both_loops_fail_the_same_requests(llama: Path, overlap: bool) -> None:
    engine = build_engine(llama, overlap=overlap)
    request = Request(
        id="a",
        prompt=[5, 6],
        sampling=SamplingParams(max_tokens=20, seed=1),
        eos_token_ids=(EOS,),
        grammar=one_of(*TEXTS, breaks_at=4),
    )
    [outcome] = generate(engine, [request])
    assert outcome.end.finish_reason is FinishReason.ERROR
    assert outcome.end.error is not None
    assert outcome.end.error.startswith("grammar 'trie' of plugin 'tests' failed")
