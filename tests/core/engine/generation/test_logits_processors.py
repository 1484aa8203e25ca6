"""Logits processors change the rows that ask for them, in the same way whatever else runs, and fail alone."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, RequestError
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.engine.generation.replay import replay
from llmfw.core.model.device.dtype_choice import DTYPES
from llmfw.core.plugin.registry import Entry, Registry

from ....doubles.knowing_drafter import KnowingDrafter
from ....doubles.static_attention import Rerun, StaticAttention
from ....doubles.steering_processor import Faulty, Steering
from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....doubles.watching import Watching
from ....length import also, also_each
from .running import Outcome, generate, registry
from .test_drafts import tell
from .test_loops import EXACT, check, draw_requests, draw_settings, play
from .tiny_models import SERVABLE, save_byte_tokenizer, save_random_model

CHOSEN = "steering,faulty"
DOUBLES = {
    ("logits_processor", "steering"): Steering,
    ("logits_processor", "faulty"): Faulty,
    ("drafter", "knowing"): KnowingDrafter,
    ("attention", "static"): StaticAttention,
}
FAULTS = ("raises", "tokens", "nothing", "too wide", "sparse", "nan", "infinity", "forbids")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)
    monkeypatch.setattr(Steering, "num_rows", [])


def components() -> Registry:
    doubles = [
        Entry(kind, name, f"{double.__module__}:{double.__name__}", "tests", "llmfw-tests", "1.0")
        for (kind, name), double in DOUBLES.items()
    ]
    fields = [
        Entry("request_field", name, "builtins:str", "tests", "llmfw-tests", "1.0")
        for name in ("steer", "fault")
    ]
    return registry(*doubles, *fields)


def build(folder: Path, replayed: list[int] | None = None, **settings: Any) -> Engine:
    config: dict[str, Any] = {"model": str(folder), "device": "cpu", "dtype": EXACT, "context_length": 256}
    config |= {"grammar": "trie", "logits_processors": CHOSEN, "prefill_stretch": 0} | settings
    make_graph = None if replayed is None else lambda: Rerun(replayed)
    return build_generation_engine(EngineConfig(**config), components(), make_graph=make_graph)


def asking(name: str, prompt: list[int] | None = None, **fields: Any) -> Request:
    sampling = SamplingParams(max_tokens=12, seed=5)
    return Request(id=name, prompt=prompt or [5, 6, 7], sampling=sampling, fields=fields)


def steered(requests: list[Request]) -> list[Request]:
    """Return the requests, two of three of which ask for a processor."""
    return [
        msgspec.structs.replace(request, fields={"steer": (8.0, 30.0)[i % 2]} if i % 3 else {})
        for i, request in enumerate(requests)
    ]


def check_mix(llama: Path, seed: int) -> None:
    rng = random.Random(seed)
    requests, settings = steered(draw_requests(rng)), draw_settings(rng)
    alone: dict[str, Outcome] = {}
    engine = build(llama, disable_radix_cache=True)
    for request in requests:
        alone[request.id] = generate(engine, [request])[0]
    for overlap in (False, True):
        for name, found in play(build(llama, overlap=overlap, **settings), requests, rng).items():
            check(found, alone[name])
    replayed: list[int] = []
    captured = build(llama, replayed, overlap=True, attention="static", cuda_graph="on", **settings)
    num = len(replayed)
    for name, found in play(captured, requests, rng).items():
        check(found, alone[name])
    assert len(replayed) > num


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, *also([2, 3, 9])])
def test_processed_text_is_the_same_in_any_mix(llama: Path, seed: int) -> None:
    """With both loops and with captured steps, and with grammars, penalties, retractions and forced tokens."""
    check_mix(llama, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 108))
def test_processed_text_is_the_same_in_many_mixes(llama: Path, seed: int) -> None:
    check_mix(llama, seed)


def test_a_processor_changes_only_rows_that_ask(llama: Path) -> None:
    engine = build(llama)
    plain, changed = generate(engine, [asking("a"), asking("b", steer=30.0)])
    [expected] = generate(build(llama, logits_processors="none"), [asking("a", steer=30.0)])
    assert plain.token_ids == expected.token_ids
    assert changed.token_ids != expected.token_ids


def test_no_row_that_asks_means_no_call(llama: Path) -> None:
    """And no more operations than without processors."""
    launched = []
    for chosen in ("none", CHOSEN):
        engine = build(llama, logits_processors=chosen)
        generate(engine, [asking("warm")])
        with Watching() as watching:
            generate(engine, [asking("a"), asking("b")])
        launched.append(watching.num_operators)
    assert launched[0] == launched[1] > 0
    assert not Steering.num_rows


def test_rows_of_a_step_share_one_call(llama: Path) -> None:
    generate(build(llama), [asking(str(i), steer=1.0) for i in range(6)])
    assert Steering.num_rows == [6] * 12


def test_rows_that_ask_get_no_drafts(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [asking("a"), asking("b", steer=30.0)]
    alone = [generate(build(llama), [request])[0] for request in requests]
    tell(monkeypatch, requests, alone, mistakes=0.0)
    engine = build(llama, drafter="knowing", draft_batch_tokens=64)
    found = generate(engine, requests)
    assert [each.token_ids for each in found] == [each.token_ids for each in alone]
    assert max(len(event.token_ids) for event in found[0].events) > 1
    assert max(len(event.token_ids) for event in found[1].events) == 1


def test_a_processor_cannot_allow_forbidden_tokens(llama: Path) -> None:
    """A grammar, allowed tokens and banned tokens stay in force."""
    texts = ("red", "green", "greenhouse")
    grammar = msgspec.structs.replace(asking("a", fault="allows"), grammar=one_of(*texts), eos_token_ids=(1,))
    listed = msgspec.structs.replace(
        asking("b", fault="allows"), sampling=SamplingParams(max_tokens=30, allowed_token_ids=(8, 9), seed=1)
    )
    held, chosen = generate(build(llama), [grammar, listed])
    assert bytes(token - FIRST_BYTE for token in held.token_ids[:-1]).decode() in texts
    assert set(chosen.token_ids) == {8, 9}


def healthy() -> list[Request]:
    return [asking("a"), asking("b", fault="none"), asking("c", steer=30.0)]


@pytest.fixture(scope="module")
def healthy_alone(llama: Path) -> list[list[int]]:
    """The tokens of each healthy request by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DTYPES, EXACT, torch.float64)
        return [generate(build(llama), [request])[0].token_ids for request in healthy()]


@pytest.mark.parametrize(
    ("fault", "overlap"),
    [
        *((fault, i % 2 == 0) for i, fault in enumerate(FAULTS)),
        *also_each(*((fault, i % 2 == 1) for i, fault in enumerate(FAULTS))),
    ],
)
def test_a_fault_ends_only_its_own_request(
    llama: Path, healthy_alone: list[list[int]], fault: str, overlap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = build(llama, overlap=overlap)
    *found, broken = generate(engine, [*healthy(), asking("d", fault=fault, steer=1.0)])
    assert [each.token_ids for each in found] == healthy_alone
    assert (broken.end.finish_reason, broken.end.error_kind) == (FinishReason.ERROR, "ComponentFailedError")
    assert broken.end.error == (
        "logits processor 'faulty' of plugin 'tests' failed on this request; the server's log says why"
    )
    assert "llmfw-tests 1.0" in caplog.text
    assert [use.failures > 0 for use in engine.stats().component_uses if use.name == "faulty"] == [True]


def test_a_processor_that_needs_solitude_fails_nobody(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each row is asked for alone, and the log says what happened."""
    requests = [asking(name, fault="raises with others") for name in "ab"]
    with caplog.at_level(logging.ERROR):
        found = generate(build(llama), requests)
    assert [each.end.finish_reason for each in found] == [FinishReason.LENGTH] * 2
    assert "ZeroDivisionError: a defect" in caplog.text


def test_a_processor_may_leave_inference_mode(llama: Path) -> None:
    requests = [asking("a", fault="leaves inference mode"), asking("b"), asking("c", steer=30.0)]
    found = generate(build(llama), requests)
    with torch.inference_mode(False):  # later tests have the mode that this one found
        Faulty.left.clear()
    assert not torch.is_inference_mode_enabled()
    assert [each.end.finish_reason for each in found] == [FinishReason.LENGTH] * 3


def test_the_models_own_nan_is_not_the_processors(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build(llama)
    sample = engine._executor.sample

    def spoil(forward: Any, masks: Any = None) -> Any:
        forward.logits[:, 3] = torch.nan
        return sample(forward, masks)

    monkeypatch.setattr(engine._executor, "sample", spoil)
    [found] = generate(engine, [asking("a", steer=1.0)])
    assert (
        found.end.error == "the model computed NaN or infinity for this request; the server's log says more"
    )


def test_begin_decides_about_a_request(llama: Path) -> None:
    engine = build(llama)
    with pytest.raises(RequestError, match="steer is -1"):
        engine.add(asking("a", steer=-1))
    with pytest.raises(Exception, match="'faulty' of plugin 'tests' failed on this request"):
        engine.add(asking("b", fault="begin"))
    assert not engine.has_work


def test_reported_logprobs_follow_the_request(llama: Path) -> None:
    """The model's own by default; after the processors with `constrained_logprobs`."""
    own = msgspec.structs.replace(asking("a", steer=60.0), logprobs=1)
    plain, changed = generate(
        build(llama), [own, msgspec.structs.replace(own, id="b", constrained_logprobs=True)]
    )
    assert plain.token_ids == changed.token_ids
    assert min(record.logprob for record in plain.logprobs) < -1
    assert min(record.logprob for record in changed.logprobs) > -0.01


def test_recorded_steps_give_the_same_tokens(llama: Path, tmp_path: Path) -> None:
    """A recording has what processors need: fields, tokens, and faults."""
    file = tmp_path / "steps"
    engine = build(llama, record_steps=str(file), disable_radix_cache=True)
    found = generate(
        engine, [asking("a", steer=30.0), asking("b", [9] * 20, steer=8.0), asking("c", fault="nan")]
    )
    steps = list(replay(file, components()))
    assert len(steps) >= 12
    assert [step.differences for step in steps] == [[]] * len(steps)
    assert [len(step.recorded.output.failures) for step in steps].count(1) == 1
    assert found[2].end.finish_reason is FinishReason.ERROR


def test_wrong_choices_end_the_start(llama: Path) -> None:
    with pytest.raises(ConfigError, match="unknown logits processor 'stearing'"):
        build(llama, logits_processors="stearing")
    with pytest.raises(ConfigError, match="no logits processor 'steering' is chosen"):
        build(llama, logits_processors="none", options={"logits_processor.steering.x": "1"})
    with pytest.raises(ConfigError, match="no option 'x'"):
        build(llama, options={"logits_processor.steering.x": "1"})
    with pytest.raises((ConfigError, ComponentError), match="named twice"):
        build(llama, logits_processors="faulty,faulty")


def test_the_engine_names_its_processors(llama: Path) -> None:
    assert build(llama).info.logits_processors == ("tests/steering", "tests/faulty")
