"""A request that another engine has begun goes on with the text that it would have had there."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
import torch

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.request_progress import continued
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.device.dtype_choice import DTYPES

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....length import also
from ....models.trial import prompts
from .running import Outcome, build_engine, generate
from .stateful_family import Family
from .test_drafts import tell
from .test_logits_processors import build as build_with_doubles
from .test_logits_processors import steered
from .test_loops import EXACT, TWO_LAYERS, check, draw_requests, draw_settings, play
from .tiny_models import SERVABLE, save_byte_tokenizer, save_random_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config_class, changes = SERVABLE["llama"]
    folder = save_random_model(tmp_path_factory.mktemp("llama"), config_class, changes | TWO_LAYERS)
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


def cut(request: Request, whole: Outcome, rng: random.Random) -> tuple[Request, Outcome]:
    """Return the request after some of its events, and what has to come then; if it has one event, all of it."""
    num = rng.randrange(1, len(whole.events)) if len(whole.events) > 1 else 0
    if num == 0:
        return request, whole
    rest = Outcome([msgspec.structs.replace(event, prompt_logprobs=None) for event in whole.events[num:]])
    return continued(request, Outcome(whole.events[:num]).token_ids), rest


def check_mix(alone_in: Engine, engines: list[Engine], seed: int) -> int:
    """Check requests that are continued at random places, among others; return how many are continued."""
    rng = random.Random(seed)
    requests = steered(draw_requests(rng))
    alone = [(request, generate(alone_in, [request])[0]) for request in requests]
    num_continued = 0
    for engine in engines:
        cuts = [cut(request, whole, rng) for request, whole in alone]
        num_continued += sum(bool(request.output) for request, _ in cuts)
        found = play(engine, [request for request, _ in cuts], rng)
        for request, rest in cuts:
            check(found[request.id], rest)
    return num_continued


@pytest.mark.parametrize("seed", [3, *also([1, 6, 2, 9])])
def test_text_goes_on_whatever_was_asked_for(llama: Path, seed: int) -> None:
    """Penalties, grammars, thinking, log probabilities, processors, stops, in both loops, with retractions."""
    settings = draw_settings(random.Random(seed))
    engines = [build_with_doubles(llama, overlap=overlap, **settings) for overlap in (False, True)]
    assert check_mix(build_with_doubles(llama, disable_radix_cache=True), engines, seed) >= 6


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
def test_text_goes_on_in_many_more_mixes(llama: Path, seed: int) -> None:
    settings = draw_settings(random.Random(seed))
    engines = [build_with_doubles(llama, overlap=overlap, **settings) for overlap in (False, True)]
    check_mix(build_with_doubles(llama, disable_radix_cache=True), engines, seed)


def test_drafts_go_on_from_the_given_output(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [
        Request(id=name, prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=30, seed=i))
        for i, name in enumerate("ab")
    ]
    whole = generate(build_with_doubles(llama), requests)
    tell(monkeypatch, requests, whole, mistakes=0.2)
    engine = build_with_doubles(llama, drafter="knowing", draft_batch_tokens=64)
    found = generate(engine, [continued(requests[0], whole[0].token_ids[:11]), requests[1]])
    assert found[0].token_ids == whole[0].token_ids[11:]
    assert found[1].token_ids == whole[1].token_ids
    assert engine.stats().num_accepted_tokens > 0


def test_states_are_computed_for_the_output(tmp_path: Path) -> None:
    family = Family("lfm2", tmp_path)
    engine = family.engine(chunked_prefill_size=16, overlap=False)
    wanted = [
        Request(id=str(i), prompt=prompt, sampling=SamplingParams(max_tokens=20, seed=i, ignore_eos=True))
        for i, prompt in enumerate(prompts())
    ]
    whole = generate(engine, wanted)
    rest = [
        continued(request, each.token_ids[: 3 * i + 1])
        for i, (request, each) in enumerate(zip(wanted, whole, strict=True))
    ]
    again = generate(family.engine(chunked_prefill_size=16, overlap=True), rest)
    for i, (found, each) in enumerate(zip(again, whole, strict=True)):
        assert found.token_ids == each.token_ids[3 * i + 1 :]


def test_the_given_output_is_counted_once(llama: Path) -> None:
    """As computed tokens, or cached ones: its events and its usage come from the engine before."""
    engine = build_engine(llama)
    request = Request(
        id="a", prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=10, seed=1, ignore_eos=True)
    )
    [whole] = generate(engine, [request])
    [rest] = generate(engine, [continued(request, whole.token_ids[:4])])
    assert [event.cached_tokens for event in rest.events] == [0] * 6
    stats = engine.stats()
    assert (stats.num_prompt_tokens, stats.num_prompt_cached) == (3 + 7, 6)


def test_a_full_queue_takes_what_has_begun(llama: Path) -> None:
    engine = build_engine(llama, max_queued_requests=1)
    request = Request(id="a", prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=10, seed=1))
    engine.add(msgspec.structs.replace(request, id="b"))
    engine.add(continued(request, [8]))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output": [5] * 10}, "output"),
        ({"output": [-1]}, "output"),
        ({"output": [10**6]}, "output"),
        ({"output": [5] * 300, "sampling": SamplingParams()}, "output"),
        ({"output": [5], "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_impossible_outputs_are_refused(llama: Path, fields: dict[str, object], param: str) -> None:
    engine = build_engine(llama)
    request = Request(id="a", prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=10))
    with pytest.raises(RequestError) as caught:
        engine.add(msgspec.structs.replace(request, **fields))
    assert caught.value.param == param


def test_an_output_against_its_grammar_fails(llama: Path) -> None:
    """It ends this request alone."""
    engine = build_engine(llama)
    wrong = Request(
        id="a",
        prompt=[5],
        sampling=SamplingParams(max_tokens=10, seed=1),
        eos_token_ids=(1,),
        grammar=one_of("red"),
        output=[FIRST_BYTE + ord("x")],
    )
    [outcome] = generate(engine, [wrong])
    assert outcome.end.error is not None
    assert engine.stats().num_running == 0
