"""What an administrator changes in a running engine takes effect, and costs no request a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.control import (
    CacheView,
    FlushCache,
    GetPolicy,
    GetTrace,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    SetPolicy,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine

from .running import GREEDY, build_engine, generate, random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

LONG = [7 + i % 200 for i in range(120)]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


def view(engine: Engine) -> CacheView:
    found = engine.control(ViewCache())
    assert isinstance(found, CacheView)
    return found


def pin(engine: Engine, token_ids: list[int], ttl_s: float = 600.0) -> PinInfo:
    found = engine.control(PinPrefix(token_ids, ttl_s))
    assert isinstance(found, PinInfo)
    return found


def policy(engine: Engine) -> PolicyInfo:
    found = engine.control(GetPolicy())
    assert isinstance(found, PolicyInfo)
    return found


@pytest.mark.parametrize("overlap", [False, True])
def test_switching_policies_does_not_change_tokens(llama: Path, overlap: bool) -> None:
    prompts = random_prompts(20, VOCAB_SIZE)
    expected = run(build_engine(llama), prompts)
    engine = build_engine(
        llama, overlap=overlap, max_total_tokens=400, max_running_requests=4, chunked_prefill_size=16
    )
    for i, prompt in enumerate(prompts):
        engine.add(Request(id=str(i), prompt=prompt, sampling=GREEDY, eos_token_ids=(1,)))
    outputs: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
    names, num_steps = policy(engine).known, 0
    while engine.has_work:
        name = names[num_steps % len(names)]
        assert engine.control(SetPolicy(name)) == PolicyInfo(name, {}, None, names)
        for event in engine.step():
            outputs[event.id] += event.token_ids
        num_steps += 1
    assert list(outputs.values()) == expected
    assert num_steps > len(names)


@pytest.mark.parametrize(
    ("name", "options", "param", "message"),
    [
        ("lpn", {}, "name", "unknown policy 'lpn'; known: .*fcfs.*Did you mean 'lpm'"),
        ("lpm", {"speed": "1"}, "options", "has no option 'speed'"),
        ("lpm", {"max_overtaken": "many"}, "options", "max_overtaken"),
    ],
)
def test_an_invalid_policy_keeps_the_current_one(
    llama: Path, name: str, options: dict[str, str], param: str, message: str
) -> None:
    engine = build_engine(llama, policy="fcfs")
    with pytest.raises(RequestError, match=message) as caught:
        engine.control(SetPolicy(name, options))
    assert caught.value.param == param
    assert policy(engine).name == "fcfs"


def test_policy_options_are_reported_as_given(llama: Path) -> None:
    engine = build_engine(llama, policy="lpm", options={"policy.max_overtaken": "3"})
    assert policy(engine).options == {"max_overtaken": "3"}
    engine.control(SetPolicy("lpm", {"max_overtaken": "5"}))
    assert policy(engine).options == {"max_overtaken": "5"}


@pytest.mark.parametrize("page_size", [1, 16])
def test_pinned_prefixes_survive_eviction(llama: Path, page_size: int) -> None:
    engine = build_engine(llama, max_total_tokens=512, page_size=page_size, max_pinned_fraction=0.5)
    assert pin(engine, LONG).num_cached == 0
    run(engine, [LONG])
    for i in range(12):
        run(engine, [[2 + i] * 100])
    kept = len(LONG) // page_size * page_size
    [info] = view(engine).pins
    assert (info.num_tokens, info.num_cached, view(engine).num_pinned) == (kept, kept, kept)
    [outcome] = generate(engine, [Request(id="a", prompt=[*LONG, 5, 6], sampling=GREEDY)])
    assert outcome.events[0].cached_tokens == kept
    engine.control(UnpinPrefix(info.id))
    for i in range(12):
        run(engine, [[2 + i] * 100])
    assert view(engine).num_pinned == 0
    [outcome] = generate(engine, [Request(id="b", prompt=[*LONG, 5, 6], sampling=GREEDY)])
    assert outcome.events[0].cached_tokens < page_size


def test_pins_yield_to_a_request_needing_memory(llama: Path) -> None:
    engine = build_engine(llama, max_total_tokens=256, max_pinned_fraction=1.0)
    prompts = [[9 + i] * 100 for i in range(2)]
    for prompt in prompts:
        pin(engine, prompt)
        run(engine, [prompt])
    assert view(engine).num_pinned == 200
    long = [5] * 200
    assert run(engine, [long], SamplingParams(max_tokens=5, temperature=0)) == run(
        build_engine(llama), [long], SamplingParams(max_tokens=5, temperature=0)
    )
    assert view(engine).num_pinned < 200


def test_flushing_keeps_pinned_prefixes(llama: Path) -> None:
    engine = build_engine(llama, max_total_tokens=512)
    run(engine, [LONG, [5] * 50])
    pin(engine, LONG[:60])
    left = engine.control(FlushCache())
    assert isinstance(left, CacheView)
    assert (left.num_tokens, left.num_pinned) == (60, 60)


def test_only_an_idle_engine_empties_its_whole_cache(llama: Path) -> None:
    engine = build_engine(llama, max_total_tokens=512)
    run(engine, [LONG])
    engine.add(Request(id="a", prompt=LONG[:20], sampling=SamplingParams(max_tokens=9, ignore_eos=True)))
    with pytest.raises(RequestError, match="0 requests run and 1 wait") as caught:
        engine.control(FlushCache(only_idle=True))
    assert caught.value.code == "requests_running"
    engine.step()
    with pytest.raises(RequestError, match="1 requests run and 0 wait"):
        engine.control(FlushCache(only_idle=True))
    engine.abort("a")
    run(engine, [[5] * 9])
    left = engine.control(FlushCache(only_idle=True))
    assert isinstance(left, CacheView)
    assert left.num_tokens == 0


def test_more_than_the_share_cannot_be_pinned(llama: Path) -> None:
    engine = build_engine(llama, max_total_tokens=400)
    pin(engine, LONG[:60])
    with pytest.raises(RequestError, match="--max-pinned-fraction"):
        pin(engine, LONG[:60])


@pytest.mark.parametrize("command", [ViewCache(), FlushCache(), PinPrefix([1], 60.0), UnpinPrefix("a")])
def test_without_a_cache_its_commands_are_refused(llama: Path, command: Any) -> None:
    engine = build_engine(llama, disable_radix_cache=True)
    with pytest.raises(RequestError, match="--disable-radix-cache"):
        engine.control(command)
    assert run(engine, [[5, 6]])


def test_an_unknown_pin_is_not_found(llama: Path) -> None:
    with pytest.raises(NotFoundError, match="pin-x"):
        build_engine(llama).control(UnpinPrefix("pin-x"))


def test_without_tracing_the_error_names_the_flag(llama: Path) -> None:
    with pytest.raises(RequestError, match="--trace-requests N"):
        build_engine(llama).control(GetTrace("a"))
