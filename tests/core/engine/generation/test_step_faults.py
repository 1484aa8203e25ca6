"""A step that raises ends its own requests, is blamed on whose code it was, and costs nobody else anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import FinishReason, Request, SamplingParams, TokenEvent
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.plugins.attention_torch.backend import TorchAttention

from .running import GREEDY, TRIE, build_engine, installed, random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

BAD = 7  # a prompt of so many tokens is one too many


class FragileAttention(TorchAttention):
    """Fails where a prompt of BAD tokens is computed, in the second of its layers: the first has been written."""

    def forward(self, query, key, value, layer, batch, sinks=None):  # type: ignore[no-untyped-def]
        if layer.index == 1 and BAD in batch.query_lens.tolist():
            raise ZeroDivisionError("no such shape")
        return super().forward(query, key, value, layer, batch, sinks)


class WrongAttention(TorchAttention):
    """Returns what `wrong` makes of the right output, for prompts of BAD tokens."""

    wrong: Callable[[torch.Tensor], Any] = staticmethod(lambda output: None)

    def forward(self, query, key, value, layer, batch, sinks=None):  # type: ignore[no-untyped-def]
        output = super().forward(query, key, value, layer, batch, sinks)
        return self.wrong(output) if BAD in batch.query_lens.tolist() else output


class WritingAttention(TorchAttention):
    """Lets `write` change the inputs of steps with prompts of BAD tokens, in its plan or its last layer."""

    write: Callable[[ForwardBatch], Any] = staticmethod(lambda batch: None)
    where = "plan"

    def plan(self, batch: ForwardBatch) -> None:
        super().plan(batch)
        self._write_in("plan", batch)

    def forward(self, query, key, value, layer, batch, sinks=None):  # type: ignore[no-untyped-def]
        output = super().forward(query, key, value, layer, batch, sinks)
        if layer.index == 1:
            self._write_in("forward", batch)
        return output

    def _write_in(self, where: str, batch: ForwardBatch) -> None:
        if where == self.where and BAD in batch.query_lens.tolist():
            self.write(batch)


FRAGILE = Entry("attention", "fragile", f"{__name__}:FragileAttention", "ext", "llmfw-ext", "1.2")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@pytest.fixture(params=["plain", "overlapped"])
def engine(llama: Path, request: pytest.FixtureRequest) -> Engine:
    return build_with(FRAGILE, llama, overlap=request.param == "overlapped")


def build_with(attention: Entry, llama: Path, *, overlap: bool, prefill: Entry | None = None) -> Engine:
    others = (each for each in installed() if each.kind in ("policy", "eviction", "token_sampler"))
    components = Registry([attention, TRIE, *others, *([] if prefill is None else [prefill])])
    config = EngineConfig(
        model=str(llama),
        device="cpu",
        dtype="float32",
        attention=attention.name,
        prefill_attention=None if prefill is None else prefill.name,
        grammar="trie",
        module_passes="none",
        overlap=overlap,
        page_size=1,
        context_length=256,
    )
    return build_generation_engine(config, components)


def drain(engine: Engine) -> list[TokenEvent]:
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def test_a_failing_step_ends_only_its_requests(
    engine: Engine, llama: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = list(range(20, 20 + BAD)), list(range(20, 20 + BAD + 5))
    engine.add(Request(id="bad", prompt=bad, sampling=GREEDY))
    [event] = drain(engine)
    assert (event.finish_reason, event.error_kind) == (FinishReason.ERROR, "ComponentFailedError")
    assert event.error is not None
    assert event.error.startswith("attention 'fragile' of plugin 'ext' failed on this request")
    [record] = [record for record in caplog.records if "fragile" in record.getMessage()]
    assert "(llmfw-ext 1.2, " in record.getMessage()
    assert "ZeroDivisionError: no such shape" in record.getMessage()
    # Nothing of what was not computed is taken for cached.
    assert run(engine, [good]) == run(build_engine(llama), [good])
    [use] = [use for use in engine.stats().component_uses if use.kind == "attention"]
    assert use.failures == 1


def test_earlier_launched_steps_are_kept_after_failure(engine: Engine, llama: Path) -> None:
    """Requests in the failed step end with an error."""
    prompts = random_prompts(3, VOCAB_SIZE, seed=3)
    engine.add(Request(id="first", prompt=prompts[0] + [9] * BAD, sampling=GREEDY))
    events = [event for _ in range(4) for event in engine.step()]
    engine.add(Request(id="bad", prompt=[3] * BAD, sampling=GREEDY))
    events += drain(engine)
    tokens = [token for event in events if event.id == "first" for token in event.token_ids]
    ends = {event.id: event.finish_reason for event in events if event.finish_reason}
    assert ends == {"first": FinishReason.ERROR, "bad": FinishReason.ERROR}
    [whole] = run(build_engine(llama), [prompts[0] + [9] * BAD])
    assert 0 < len(tokens) < len(whole)
    assert tokens == whole[: len(tokens)]
    assert run(engine, prompts) == run(build_engine(llama), prompts)


def test_a_step_failing_outside_components_ends_its_requests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(engine._executor, "_forward", Mock(side_effect=torch.OutOfMemoryError("no room")))
        engine.add(Request(id="a", prompt=[3, 4], sampling=GREEDY))
        [event] = drain(engine)
    assert (event.error_kind, event.error) == (
        "EngineError",
        "the step of this request failed; the server's log says why",
    )
    [tokens] = run(engine, [[3, 4]])
    assert tokens


WRONG = Entry("attention", "wrong", f"{__name__}:WrongAttention", "ext", "llmfw-ext", "1.2")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda output: None, r"returned NoneType in place of a tensor"),
        (lambda output: output.transpose(0, 1), r"returned torch.float32 \[4, 7, 16\] in place of"),
        (
            lambda output: output[1:],
            r"returned torch.float32 \[6, 4, 16\] in place of torch.float32 \[7, 4, 16\]",
        ),
        (lambda output: output.double(), r"returned torch.float64"),
    ],
)
def test_a_wrong_output_is_the_backends_failure(
    wrong: Callable[[torch.Tensor], Any],
    said: str,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(WrongAttention, "wrong", staticmethod(wrong))
    engine = build_with(WRONG, llama, overlap=False)
    engine.add(Request(id="bad", prompt=list(range(20, 20 + BAD)), sampling=GREEDY))
    [event] = drain(engine)
    assert event.error is not None
    assert event.error.startswith("attention 'wrong' of plugin 'ext' failed on this request")
    assert re.search(said, caplog.text)


@pytest.mark.parametrize("beside_another", [False, True])
def test_of_two_backends_the_faulty_one_is_named(
    beside_another: bool, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the step has single tokens, which the other backend has computed."""
    monkeypatch.setattr(WrongAttention, "wrong", staticmethod(lambda output: None))
    other = Entry(
        "attention", "other", f"{TorchAttention.__module__}:TorchAttention", "two", "llmfw-two", "1"
    )
    engine = build_with(other, llama, overlap=False, prefill=WRONG)
    if beside_another:
        engine.add(Request(id="good", prompt=[3, 4], sampling=GREEDY))
        engine.step()
    engine.add(Request(id="bad", prompt=list(range(20, 20 + BAD)), sampling=GREEDY))
    errors = [event.error for event in drain(engine) if event.error]
    assert len(errors) == 1 + beside_another
    assert all(
        error.startswith("attention 'wrong' of plugin 'ext' failed on this request") for error in errors
    )


@pytest.mark.long
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_ends_only_its_own_requests(
    number: float,
    overlap: bool,
    temperature: float,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(WrongAttention, "wrong", staticmethod(lambda output: output * number))
    engine = build_with(WRONG, llama, overlap=overlap)
    bad, good = list(range(20, 20 + BAD)), list(range(20, 20 + BAD + 5))
    sampling = SamplingParams(temperature=temperature, max_tokens=4, seed=1)
    engine.add(Request(id="bad", prompt=bad, sampling=sampling))
    [event] = drain(engine)
    assert (event.finish_reason, event.error_kind) == (FinishReason.ERROR, "EngineError")
    assert event.error == "the model computed NaN or infinity for this request; the server's log says more"
    assert "computed NaN or infinity for 1 of 1 requests in a step (bad)" in caplog.text
    # Nothing of it was cached.
    assert run(engine, [good]) == run(build_engine(llama), [good])


WRITING = Entry("attention", "writing", f"{__name__}:WritingAttention", "ext", "llmfw-ext", "1.2")


@pytest.mark.long
@pytest.mark.parametrize("where", ["plan", "forward"])
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("positions", lambda batch: batch.positions.fill(0)),
        ("kv_lens", lambda batch: torch.from_numpy(batch.kv_lens).add_(1)),
        ("query_lens", lambda batch: batch.query_lens.__setitem__(0, 1)),
        ("slots", lambda batch: batch.slots.add_(1)),
        ("rows", lambda batch: batch.rows.add_(1)),
        ("page_table", lambda batch: batch.page_table.zero_()),
    ],
)
def test_writing_to_inputs_is_the_backends_failure(
    name: str,
    write: Callable[[ForwardBatch], Any],
    where: str,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing of the step is cached, and the sequences of other steps keep their pages."""
    monkeypatch.setattr(WritingAttention, "write", staticmethod(write))
    monkeypatch.setattr(WritingAttention, "where", where)
    engine = build_with(WRITING, llama, overlap=False)
    bad, good = list(range(20, 20 + BAD)), list(range(20, 20 + BAD + 5))
    engine.add(Request(id="bad", prompt=bad, sampling=GREEDY))
    [event] = drain(engine)
    assert event.error is not None
    assert event.error.startswith("attention 'writing' of plugin 'ext' failed on this request")
    assert re.search(rf"wrote to batch\.{name}; it must copy", caplog.text)
    assert run(engine, [good]) == run(build_engine(llama), [good])
