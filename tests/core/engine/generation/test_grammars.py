"""Requests with grammars in the engine: compiled beside the loop, held to in every loop."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, GrammarCostError, RequestError, UnknownComponentError
from llmfw.core.base.request import FinishReason, GrammarSpec, Request, SamplingParams, Thinking, TokenEvent
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.engine.generation.grammars import Grammars, choose_grammars
from llmfw.core.plugin.registry import Entry, Registry

from ....doubles.trie_grammar import FIRST_BYTE, TrieBackend, TrieGrammar, one_of, text_of, tokens_of
from .running import GREEDY, TRIE, build_engine, generate
from .tiny_models import SERVABLE, save_byte_tokenizer, save_random_model

EOS = 1
PROMPT = [50, 60, 70]
THOUGHT = Thinking(begin=(2,), end=(3, 4), budget=5)
FAILED = "grammar 'trie' of plugin 'tests' failed on this request; the server's log says why"
CHOICES = ("red", "green", "blue", "blueish", "greenhouse")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(scope="module", params=["plain", "overlapped"])
def engine(llama: Path, request: pytest.FixtureRequest) -> Engine:
    return build_engine(llama, overlap=request.param == "overlapped")


def asked(id: str = "a", *texts: str, grammar: GrammarSpec | None = None, **fields: object) -> Request:
    spec = grammar or one_of(*(texts or CHOICES))
    defaults = {"prompt": PROMPT, "sampling": GREEDY, "eos_token_ids": (EOS,), "grammar": spec}
    return Request(id=id, **(defaults | fields))  # type: ignore[arg-type]


def seeded(seed: int, **fields: object) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 24, "seed": seed} | fields))  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.text(max_size=8).filter(lambda s: len(s.encode()) < 20), min_size=1, max_size=6), st.data())
def test_every_output_matches_its_grammar(engine: Engine, texts: set[str], data: st.DataObject) -> None:
    sampling = seeded(data.draw(st.integers(0, 99)), temperature=data.draw(st.sampled_from([0.0, 1.0, 3.0])))
    [outcome] = generate(engine, [asked("a", *texts, sampling=sampling)])
    *tokens, last = outcome.token_ids
    assert text_of(tokens) in texts
    assert last == EOS
    assert outcome.end.finish_reason is FinishReason.STOP


def test_forced_tokens_are_appended_in_one_step(llama: Path) -> None:
    [outcome] = generate(build_engine(llama), [asked("a", "indivisible")])
    assert [len(event.token_ids) for event in outcome.events] == [12]
    [slow] = generate(build_engine(llama, overlap=True), [asked("a", "indivisible")])
    assert [len(event.token_ids) for event in slow.events] == [1] * 12
    assert slow.token_ids == outcome.token_ids == [*tokens_of("indivisible"), EOS]


def test_forced_tokens_with_logprobs_are_computed_singly(engine: Engine) -> None:
    [outcome] = generate(engine, [asked("a", "green", "grey", logprobs=1)])
    assert len(outcome.logprobs) == len(outcome.token_ids) == len(outcome.events)


def test_forced_tokens_are_cached_like_others(llama: Path) -> None:
    engine = build_engine(llama)
    [choice] = generate(engine, [asked("a", "a long road", "a long lane")])
    again = Request(id="b", prompt=PROMPT + choice.token_ids, sampling=GREEDY)
    assert generate(engine, [again])[0].events[0].cached_tokens == len(PROMPT) + len("a long ")


def test_max_tokens_truncates_forced_tokens(engine: Engine) -> None:
    [outcome] = generate(engine, [asked("a", "indivisible", sampling=seeded(1, max_tokens=4))])
    assert text_of(outcome.token_ids) == "indi"
    assert outcome.end.finish_reason is FinishReason.LENGTH


def test_a_forced_stop_token_stops(engine: Engine) -> None:
    stop = tokens_of("v")
    [outcome] = generate(engine, [asked("a", "indivisible", sampling=seeded(1, stop_token_ids=stop))])
    assert text_of(outcome.token_ids) == "indiv"


def test_min_tokens_delays_only_avoidable_ends(engine: Engine) -> None:
    sampling = seeded(1, min_tokens=6, logit_bias={EOS: 100.0})
    outcomes = generate(
        engine, [asked("a", "bl", "blueish", sampling=sampling), asked("b", "bl", sampling=sampling)]
    )
    assert [text_of(outcome.token_ids[:-1]) for outcome in outcomes] == ["blueish", "bl"]
    assert [outcome.token_ids[-1] for outcome in outcomes] == [EOS, EOS]


def test_logit_bias_works_within_the_mask(engine: Engine) -> None:
    biased = seeded(1, temperature=0, logit_bias={tokens_of("g")[0]: 100.0, tokens_of("x")[0]: 100.0})
    [outcome] = generate(engine, [asked("a", sampling=biased)])
    assert outcome.token_ids[0] == tokens_of("g")[0]


@pytest.mark.parametrize("budget", [0, 5])
@pytest.mark.parametrize("grammar", [None, one_of(*CHOICES)])
def test_a_thinking_budget_works_with_grammars(
    engine: Engine, budget: int, grammar: GrammarSpec | None
) -> None:
    thinking = Thinking(end=(3, 4), is_open=True, budget=budget)
    request = Request(
        id="a", prompt=PROMPT, sampling=seeded(3), eos_token_ids=(EOS,), grammar=grammar, thinking=thinking
    )
    [outcome] = generate(engine, [request])
    assert outcome.token_ids[budget : budget + 2] == [3, 4]
    if grammar is not None:
        assert text_of(outcome.token_ids[budget + 2 : -1]) in CHOICES


def test_grammars_allow_thinking_before_the_answer(engine: Engine) -> None:
    sampling = seeded(3, logit_bias={2: 100.0})
    [outcome] = generate(engine, [asked("a", sampling=sampling, thinking=THOUGHT)])
    assert outcome.token_ids[0] == 2
    assert outcome.token_ids[6:8] == [3, 4]
    assert text_of(outcome.token_ids[8:-1]) in CHOICES
    [direct] = generate(engine, [asked("a", sampling=seeded(3, logit_bias={2: -100.0}), thinking=THOUGHT)])
    assert text_of(direct.token_ids[:-1]) in CHOICES


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bias", [-100.0, 0.0, 100.0])
def test_space_after_thinking_is_outside_the_grammar(llama: Path, seed: int, bias: float) -> None:
    """This holds in both loops."""
    thinking = Thinking(end=(3, 4), is_open=True, budget=3, space=(5, 6))
    request = asked("a", sampling=seeded(seed, logit_bias={5: bias, 6: bias}), thinking=thinking)
    loops = [
        generate(build_engine(llama, overlap=overlap), [request])[0].token_ids for overlap in (False, True)
    ]
    assert loops[0] == loops[1]
    after = loops[0][loops[0].index(3) + 2 : -1]
    assert after[0] in (5, 6) if bias > 0 else bias == 0 or after[0] not in (5, 6)
    assert text_of(after[after[0] in (5, 6) :]) in CHOICES


def test_a_failing_grammar_ends_only_its_request(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    broken = asked("bad", grammar=one_of("red", "blue", breaks_at=1))
    outcomes = generate(engine, [asked("a"), broken, asked("b")])
    assert [outcome.end.finish_reason for outcome in outcomes] == ["stop", "error", "stop"]
    assert (outcomes[1].end.error_kind, outcomes[1].end.error) == ("ComponentFailedError", FAILED)
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert re.search(
        r"\(llmfw-tests 1.0, .*request bad after token \d+: ValueError: the grammar broke",
        record.getMessage(),
    )


@pytest.mark.parametrize(
    ("mask", "reason"), [("raises", "grammar 'trie' of plugin 'tests' failed"), ("empty", "allows no token")]
)
def test_a_failing_mask_ends_only_its_request(engine: Engine, mask: str, reason: str) -> None:
    outcomes = generate(
        engine, [asked("a"), asked("bad", grammar=one_of("red", "blue", mask=mask)), asked("b")]
    )
    assert [outcome.end.finish_reason for outcome in outcomes] == ["stop", "error", "stop"]
    assert reason in (outcomes[1].end.error or "")


def test_a_grammar_error_is_not_a_stop(engine: Engine) -> None:
    # A broken one allows the end only, which is then what is sampled.
    broken = asked("bad", grammar=one_of("red", "redder", "blue", breaks_at=3), sampling=seeded(1))
    outcomes = generate(engine, [broken])
    assert (outcomes[0].end.finish_reason, outcomes[0].end.error) == ("error", FAILED)


def test_slow_masks_end_only_their_request(engine: Engine) -> None:
    slow = one_of("red", "blue", "black", "brown", burn=0.25)
    outcomes = generate(engine, [asked("a"), asked("bad", grammar=slow), asked("b")])
    assert [outcome.end.finish_reason for outcome in outcomes] == ["stop", "error", "stop"]
    assert outcomes[1].end.error_kind == "GrammarCostError"
    with pytest.raises(GrammarCostError, match="an earlier output was ended for it"):
        engine.add(asked("again", grammar=slow))


def test_compile_errors_reach_the_client_and_are_retried(engine: Engine) -> None:
    wrong = asked("a", grammar=one_of(fail="the schema is wrong"))
    for _ in range(2):
        outcome, other = generate(engine, [wrong, asked("b")])
        assert (outcome.end.error_kind, outcome.end.error) == ("RequestError", "the schema is wrong")
        assert other.end.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("method", ["compile", "copy", "forced", "hasten"])
def test_backend_errors_end_only_their_request(
    engine: Engine, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: object, *args: object) -> None:
        raise LookupError("lost")

    monkeypatch.setattr(TrieBackend if method in ("compile", "hasten") else TrieGrammar, method, fail)
    texts = (f"{method:-<14}a", f"{method:-<14}b")  # a choice where the end is near
    wanted = asked("bad", *texts, sampling=seeded(1, max_tokens=16))
    free = Request(id="b", prompt=PROMPT, sampling=GREEDY)
    bad, other = generate(engine, [wanted, free])
    assert (bad.end.error_kind, bad.end.error) == ("ComponentFailedError", FAILED)
    assert other.end.finish_reason in ("stop", "length")
    assert "LookupError: lost" in caplog.text


def test_stats_report_the_time_in_the_backend(engine: Engine) -> None:
    before = {use.kind: use for use in engine.stats().component_uses}
    generate(engine, [asked("a", "something new"), asked("b")])
    after = {use.kind: use for use in engine.stats().component_uses}
    assert after["grammar"].seconds > before["grammar"].seconds
    assert after["policy"].calls > before["policy"].calls


def test_a_slow_compile_delays_only_its_request(engine: Engine, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    woken = threading.Event()
    engine.call_when_ready(woken.set)
    engine.add(asked("slow", grammar=one_of("slow", wait_for=str(go_on))))
    engine.add(Request(id="b", prompt=PROMPT, sampling=GREEDY))
    assert {event.id for event in drain(engine)} == {"b"}
    assert not woken.is_set()
    assert engine.stats().num_waiting == 1
    go_on.touch()
    assert woken.wait(5)
    assert text_of([token for event in drain(engine) for token in event.token_ids][:-1]) == "slow"


def drain(engine: Engine) -> list[TokenEvent]:
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def test_an_aborted_request_ignores_its_compiled_grammar(engine: Engine) -> None:
    slow = one_of("slow", sleep=0.2, number=2)
    engine.add(asked("a", grammar=slow))
    with pytest.raises(RequestError, match="runs already"):
        engine.add(asked("a"))
    engine.abort("a")
    assert engine.stats().num_waiting == 0
    [outcome] = generate(engine, [asked("a", grammar=slow)])
    assert text_of(outcome.token_ids[:-1]) == "slow"


def test_compiled_grammars_are_an_lru_cache() -> None:
    backend = TrieBackend(SimpleNamespace(eos_token_ids=(EOS,)), 300)  # type: ignore[arg-type]
    grammars = Grammars(lambda: backend, max_compiled=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        if grammars.get(asked(text, text)) is None:
            while not grammars.has_ready:
                time.sleep(0.001)
            assert [request.id for request, _ in grammars.take_ready()] == [text]
    assert backend.compiled == [one_of(text) for text in ("a", "b", "c", "b")]


def test_compiled_grammars_stay_within_max_bytes() -> None:
    backend = TrieBackend(SimpleNamespace(eos_token_ids=(EOS,)), 300)  # type: ignore[arg-type]
    grammars = Grammars(lambda: backend, max_bytes=100)
    specs = {text: msgspec.structs.replace(one_of(text), num_bytes=40) for text in "abc"}
    for text in ("a", "b", "a", "c", "a", "b"):
        if grammars.get(asked(text, grammar=specs[text])) is None:
            while not grammars.has_ready:
                time.sleep(0.001)
            assert [request.id for request, _ in grammars.take_ready()] == [text]
    assert backend.compiled == [specs[text] for text in ("a", "b", "c", "b")]


def test_grammars_are_refused_without_a_backend(llama: Path) -> None:
    engine = build_engine(llama, grammar="none")
    with pytest.raises(RequestError, match="--grammar none"):
        engine.add(asked())
    with pytest.raises(RequestError, match="no installed plugin"):
        choose_grammars(EngineConfig(model="m"), Registry([]), 300).check()


def test_auto_uses_the_highest_ranked_usable_backend() -> None:
    better = Entry("grammar", "better", "nowhere:Better", "p", "p", "1", needs=("no_such_module",), rank=9)
    choose_grammars(EngineConfig(model="m"), Registry([better, TRIE]), 300).check()
    with pytest.raises(ComponentError, match="needs no_such_module"):
        choose_grammars(EngineConfig(model="m", grammar="better"), Registry([better]), 300)
    with pytest.raises(UnknownComponentError, match="known: better"):
        choose_grammars(EngineConfig(model="m", grammar="bettr"), Registry([better]), 300)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"eos_token_ids": ()}, "eos_token_ids"),
        ({"thinking": Thinking(end=())}, "thinking.end"),
        ({"thinking": Thinking(end=(300,))}, "thinking.end"),
        ({"thinking": Thinking(end=(3,), space=(300,))}, "thinking.space"),
        ({"thinking": Thinking(begin=(-1,), end=(3,))}, "thinking.begin"),
        ({"thinking": Thinking(end=(3,), budget=-1)}, "thinking.budget"),
    ],
)
def test_a_wrong_request_names_the_field(engine: Engine, fields: dict[str, object], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.add(asked(**fields))  # type: ignore[arg-type]
    assert caught.value.param == param
