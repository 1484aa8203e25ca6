"""Captured steps give what steps give that are not, read nothing but what stays where it is, and write to no other's
pages."""

from __future__ import annotations

import functools
import gc
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import numpy as np
import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.base.step import StepInput
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.device.dtype_choice import DTYPES
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.graphs import DecodeGraphs, Graph, cuda_graphs
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.core.testing.attention_case import make_layer

from ...doubles.static_attention import Rerun, StaticAttention
from ...doubles.trie_grammar import FIRST_BYTE
from ...length import also
from ..engine.generation.running import build_engine, generate, random_prompts, registry, run
from ..engine.generation.test_loops import EXACT, check, draw_requests, draw_settings, play
from ..engine.generation.tiny_models import (
    DIFFERENT,
    SERVABLE,
    VOCAB_SIZE,
    save_byte_tokenizer,
    save_random_model,
)

STATIC = Entry(
    "attention", "static", f"{StaticAttention.__module__}:StaticAttention", "tests", "llmfw-tests", "1.0"
)
CPU = torch.device("cpu")


class TestStaticAttention(AttentionBackendTests):
    """The double keeps the promises of a backend that can be captured."""

    @pytest.fixture
    def backend(self) -> type[StaticAttention]:
        return StaticAttention


def with_static() -> Registry:
    installed = registry()
    return Registry([*(entry for kind in INTERFACES for entry in installed.entries(kind)), STATIC])


def build_captured(
    folder: Path, replayed: list[int], clock: StepClock | None = None, **settings: Any
) -> Engine:
    config: dict[str, Any] = {"model": str(folder), "device": "cpu", "context_length": 256, "grammar": "trie"}
    config |= {"attention": "static", "dtype": EXACT} | settings
    return build_generation_engine(
        EngineConfig(**config), with_static(), make_graph=lambda: Rerun(replayed), clock=clock
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DTYPES, EXACT, torch.float64)


def check_captured(llama: Path, seed: int) -> list[int]:
    """Compare two engines that capture steps with single runs; return how many captured steps each has run.

    A mix may have none: in each of its steps, a prompt may be prefilled.
    """
    counts = []
    rng = random.Random(seed)
    requests, settings = draw_requests(rng), draw_settings(rng)
    engine = build_engine(llama, disable_radix_cache=True, dtype=EXACT)
    alone = {request.id: generate(engine, [request])[0] for request in requests}
    for overlap, when in ((False, "lazy"), (True, "on")):
        replayed: list[int] = []
        changes = {"cuda_graph": when, "cuda_graph_max_bs": rng.choice([1, 3, 8, None])}
        engine = build_captured(llama, replayed, overlap=overlap, **(settings | changes))
        captured = len(replayed)
        for name, found in play(engine, requests, rng).items():
            check(found, alone[name])
        counts.append(len(replayed) - captured)
    return counts


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *also([1, 2])])
def test_captured_steps_give_the_same_text(llama: Path, seed: int) -> None:
    assert min(check_captured(llama, seed)) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_captured_steps_agree_in_many_more_mixes(llama: Path, seed: int) -> None:
    check_captured(llama, seed)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("family", [*DIFFERENT, *also(sorted(SERVABLE.keys() - set(DIFFERENT)))])
def test_every_family_can_be_captured(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(6, VOCAB_SIZE)
    replayed: list[int] = []
    settings = {"chunked_prefill_size": 16, "max_total_tokens": 260, "cuda_graph_max_bs": len(prompts)}
    engine = build_captured(folder, replayed, dtype="float32", **settings)
    captured = len(replayed)
    assert run(engine, prompts) == run(build_engine(folder), prompts)
    assert len(replayed) > captured


def test_sizes_are_captured_on_start_lazily_or_never(llama: Path) -> None:
    replayed: dict[str, list[int]] = {"on": [], "lazy": [], "off": []}
    prompts = [[5, 6], [7, 8], [9, 10]]
    for when, counted in replayed.items():
        engine = build_captured(llama, counted, cuda_graph=when, cuda_graph_max_bs=4)
        assert len(counted) == (3 if when == "on" else 0)
        run(engine, prompts, SamplingParams(temperature=0, max_tokens=5))
    assert len(replayed["on"]) == 3 + len(replayed["lazy"]) > 3
    assert not replayed["off"]


class Panic(BaseException):
    """As extensions written in Rust raise it."""


class Failing(Rerun):
    """Fails to capture, after it has run the function."""

    def __init__(self, replayed: list[int], error: BaseException) -> None:
        super().__init__(replayed)
        self._error = error

    def capture(self, function: Callable[[], None]) -> None:
        function()
        raise self._error

    def replay(self) -> None:
        raise AssertionError("nothing was captured")


FAILURES: dict[str, BaseException] = {
    "RuntimeError: not permitted": RuntimeError("not permitted\nand more"),
    "TypeError: forward() takes 2 arguments": TypeError("forward() takes 2 arguments"),
    "RuntimeError: Panic: index out of bounds": Panic("index out of bounds"),
}
UNCAPTURED = "Steps are not captured in CUDA graphs from now on: "


def check_uncaptured(llama: Path, make_graph: Callable[[], Graph], **settings: Any) -> None:
    """Assert that an engine whose captures fail generates the same as others."""
    config: dict[str, Any] = {"model": str(llama), "device": "cpu", "dtype": EXACT, "context_length": 256}
    config |= {"attention": "static"} | settings
    engine = build_generation_engine(
        EngineConfig(**config), with_static(), make_graph=make_graph, clock=StepClock(CPU)
    )
    prompts = random_prompts(4, VOCAB_SIZE)
    assert run(engine, prompts) == generated_without_graphs(llama)


@functools.cache
def generated_without_graphs(llama: Path) -> list[list[int]]:
    """Return what an engine that captures nothing generates."""
    return run(build_engine(llama, dtype=EXACT), random_prompts(4, VOCAB_SIZE))


@pytest.mark.parametrize("when", ["on", "lazy"])
@pytest.mark.parametrize("reason", FAILURES)
def test_any_failed_capture_is_logged_and_steps_run(
    llama: Path, caplog: pytest.LogCaptureFixture, reason: str, when: str
) -> None:
    with caplog.at_level(logging.WARNING, "llmfw.core.step.graphs"):
        check_uncaptured(llama, lambda: Failing([], FAILURES[reason]), cuda_graph=when)
    assert [record.getMessage() for record in caplog.records] == [UNCAPTURED + reason]


@pytest.mark.parametrize("when", ["on", "lazy"])
def test_a_failed_plan_names_its_backend(
    llama: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fail(backend: StaticAttention) -> None:
        raise LookupError("no kernel")

    monkeypatch.setattr(StaticAttention, "_lengths", property(fail))  # which plan() reads if a step is static
    with caplog.at_level(logging.WARNING, "llmfw.core.step.graphs"):
        check_uncaptured(llama, lambda: Rerun([]), cuda_graph=when)
    [said] = [record.getMessage() for record in caplog.records]
    assert said == f"{UNCAPTURED}attention 'static' of plugin 'tests' failed: LookupError: no kernel"


def test_sizes_without_memory_are_left_out(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    error, replayed, made = torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), [], []

    def make_graph() -> Graph:
        made.append(1)
        return Failing(replayed, error) if len(made) in (1, 3) else Rerun(replayed)

    with caplog.at_level(logging.WARNING, "llmfw.core.step.graphs"):
        check_uncaptured(llama, make_graph, cuda_graph="on", cuda_graph_max_bs=24)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "Steps of more than 4 sequences are not captured in CUDA graphs from now on: OutOfMemoryError: CUDA out of "
        "memory. Tried; to leave memory"
    )
    assert len(made) == 6  # 24 and 8 fail; 16 is dropped, as it takes what 4, 2 and 1 need
    assert len(replayed) > 4


def test_an_uncapturable_backend_runs_without_graphs(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    replayed: list[int] = []
    with caplog.at_level(logging.INFO, "llmfw.core.engine.generation"):
        engine = build_captured(llama, replayed, attention="torch")
    assert "No CUDA graphs: attention backend torch: it does not say that it can" in caplog.text
    prompts = random_prompts(4, VOCAB_SIZE)
    assert run(engine, prompts) == run(build_engine(llama, dtype=EXACT), prompts)
    assert not replayed


class Poisoning(Staging):
    """Spoils what it brought before, whenever it brings something."""

    def __init__(self) -> None:
        super().__init__(CPU, packs=True)
        self._before: list[torch.Tensor] = []

    def send(self, *arrays: Any) -> list[torch.Tensor]:
        for tensor in self._before:
            tensor.fill_(2**30)
        self._before = super().send(*arrays)
        return self._before


class Rig:
    """One layer of attention with random projections in place of a model, 4 rows, pages of 2 tokens."""

    def __init__(self, staging: Staging) -> None:
        self.spec = make_layer()
        generator = torch.Generator().manual_seed(0)
        heads = ((4, 16), (2, 16), (2, 16))
        self.tables = [torch.randn(50, *shape, generator=generator) for shape in heads]
        self.storage = KVStorage([self.spec], 21, 2, torch.float32, CPU)
        self.backend = StaticAttention([self.spec], self.storage, StaticAttention.Options())
        self.page_table = PageTable(4, 5, 2, staging, CPU, padding_page=20)
        self.changes = self.page_table.change(
            np.arange(20), np.random.default_rng(0).permutation(20).astype(np.int32)
        )
        self.last_tokens = torch.tensor([11, 12, 13, 14, 0])
        self.replayed: list[int] = []
        self.graphs = DecodeGraphs(
            [2, 4, 8],
            lambda: Rerun(self.replayed),
            self.forward,
            self.backend,
            self.page_table,
            staging,
            self.last_tokens,
            64,
        )

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        query, key, value = (table[ids] for table in self.tables)
        return self.backend.forward(query + positions[:, None, None], key, value, self.spec, batch).flatten(1)

    def step(self, rows: list[int], lengths: list[int], in_flight: bool = False) -> StepInput:
        num = len(rows)
        return StepInput(
            tokens=np.zeros(num, np.int64) if in_flight else np.arange(num) + 11,
            sources=np.array(rows) if in_flight else np.full(num, -1),
            rows=np.array(rows),
            starts=np.array(lengths) - 1,
            counts=np.ones(num, np.int64),
            num_sampled=np.ones(num, np.int64),
            num_single=num,
            num_sampling=num,
        )

    def run(self, step: StepInput, size: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        changes, self.changes = self.changes, None
        return self.graphs.run(step, changes, size)


STEPS: list[tuple[list[int], list[int]]] = [
    ([0, 1, 2], [1, 1, 1]),
    ([2, 0, 1], [2, 2, 2]),
    ([0, 2], [3, 3]),
    ([3], [1]),
    ([3, 0, 2, 1], [2, 4, 4, 3]),
    ([1, 2, 3], [4, 5, 3]),
]


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_replay_reads_only_static_buffers(in_flight: bool) -> None:
    clean, poisoned = Rig(Staging(CPU, packs=True)), Rig(Poisoning())
    for rows, lengths in STEPS:
        step = clean.step(rows, lengths, in_flight)
        expected, _ = clean.run(step, len(rows) + len(rows) % 2)
        expected = expected.clone()
        logits, sampled = poisoned.run(step)
        assert torch.equal(logits, expected)
        assert sampled.tolist() == rows
    assert len(poisoned.replayed) == len(STEPS)


@pytest.mark.parametrize("size", [4, 8])
def test_only_new_tokens_and_padding_are_written(size: int) -> None:
    rig = Rig(Staging(CPU, packs=True))
    for rows, lengths in STEPS[:3]:
        before = rig.storage.keys[0].clone().flatten(0, 1)
        step = rig.step(rows, lengths)
        slots = rig.page_table.slots(step.rows, step.starts)
        rig.run(step, size)
        changed = (rig.storage.keys[0].flatten(0, 1) != before).flatten(1).any(1).nonzero()[:, 0].tolist()
        assert set(changed) - {rig.page_table.padding_slot} == set(slots.tolist())
        assert torch.equal(rig.storage.keys[0].flatten(0, 1)[slots], rig.tables[1][step.tokens])


def test_padding_does_not_change_other_rows() -> None:
    small, large = Rig(Staging(CPU, packs=True)), Rig(Staging(CPU, packs=True))
    for rows, lengths in STEPS[:3]:
        step = small.step(rows, lengths)
        expected, _ = small.run(step)
        logits, _ = large.run(step, 8)
        torch.testing.assert_close(logits, expected)


def test_no_garbage_is_collected_during_a_capture() -> None:
    """It could free the graphs of an earlier engine, and CUDA then ends the capture."""
    rig = Rig(Staging(CPU, packs=True))
    collecting: list[bool] = []
    make_graph = rig.graphs._make_graph

    def watched() -> Graph:
        graph = make_graph()
        capture = graph.capture
        graph.capture = lambda function: (collecting.append(gc.isenabled()), capture(function))[1]  # type: ignore[method-assign]
        return graph

    rig.graphs._make_graph = watched
    rig.graphs.capture_all()
    assert collecting == [False] * 3
    assert gc.isenabled()


def test_the_largest_size_is_captured_first() -> None:
    """No stored keys are touched."""
    rig = Rig(Staging(CPU, packs=True))
    rig.graphs.capture_all()
    assert len(rig.replayed) == 3
    assert not rig.storage.keys[0][:20].any()


def test_only_single_token_sampling_steps_are_captured(llama: Path) -> None:
    replayed: list[int] = []
    engine = build_captured(llama, replayed, cuda_graph="lazy", chunked_prefill_size=8)
    engine.add(
        Request(id="a", prompt=list(range(2, 22)), sampling=SamplingParams(max_tokens=4, temperature=0))
    )
    steps = 0
    while engine.has_work:
        engine.step()
        steps += 1
    assert len(replayed) == 3  # of the four tokens, the first comes of the prompt
    assert steps >= 6


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """torch.cuda by its signatures: there is no device here. The list "calls" has what was called."""
    calls: list[str] = []
    names = ("graph", "CUDAGraph", "Stream", "stream", "current_stream", "set_stream", "graph_pool_handle")
    cuda = {name: create_autospec(getattr(torch.cuda, name)) for name in names}
    cuda["current_device"] = Mock(return_value=1)
    for name, double in cuda.items():
        monkeypatch.setattr(torch.cuda, name, double)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        cuda[name] = Mock()
        monkeypatch.setattr(torch._C, name, cuda[name], raising=False)
    cuda["graph"].return_value.__enter__.side_effect = lambda *_: calls.append("begin")
    cuda["graph"].return_value.__exit__.return_value = False
    cuda["stream"].return_value.__exit__.return_value = False
    cuda["set_stream"].side_effect = lambda stream: calls.append("back")
    cuda["graph_pool_handle"].side_effect = [(0, 1), (0, 2)]
    return cuda | {"calls": calls}


def test_a_capture_follows_a_run(cuda: dict[str, Any]) -> None:
    calls = cuda["calls"]
    made = cuda_graphs()()
    made.capture(lambda: calls.append("run"))
    assert calls == ["run", "begin", "run", "back"]
    assert cuda["set_stream"].call_args.args == (cuda["current_stream"].return_value,)
    cuda["_cuda_endAllocateToPool"].assert_not_called()
    made.replay()
    cuda["CUDAGraph"].return_value.replay.assert_called_once_with()


def test_a_failed_run_is_waited_for(cuda: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="mine"):
        cuda_graphs()().capture(Mock(side_effect=TypeError("mine")))
    cuda["current_stream"].return_value.wait_stream.assert_called_once_with(cuda["Stream"].return_value)
    assert not cuda["calls"]


def fail_to_capture(cuda: dict[str, Any], at_end: Exception | None = None) -> Callable[[], Graph]:
    """Fail to capture with TypeError, and to end the capture; return the factory of graphs."""
    factory = cuda_graphs()
    cuda["graph"].return_value.__exit__.side_effect = at_end
    with pytest.raises(TypeError, match="mine"):
        factory().capture(Mock(side_effect=[None, TypeError("mine")]))
    assert cuda["calls"] == ["begin", "back"]
    cuda["graph"].return_value.__exit__.side_effect = None
    return factory


def pools(cuda: dict[str, Any]) -> list[tuple[int, int]]:
    return [call.kwargs["pool"] for call in cuda["graph"].call_args_list]


def test_an_invalidated_capture_gives_its_pool_back(cuda: dict[str, Any]) -> None:
    factory = fail_to_capture(cuda, RuntimeError("operation failed due to a previous error during capture"))
    cuda["_cuda_endAllocateToPool"].assert_called_once_with(1, (0, 1))
    cuda["_cuda_releasePool"].assert_called_once_with(1, (0, 1))
    factory().capture(Mock())
    assert pools(cuda) == [(0, 1), (0, 2)]


def test_a_pool_that_torch_gave_back_is_kept(cuda: dict[str, Any]) -> None:
    cuda["_cuda_endAllocateToPool"].side_effect = RuntimeError("not currently recording to mempool_id")
    fail_to_capture(cuda)().capture(Mock())
    cuda["_cuda_releasePool"].assert_not_called()
    assert pools(cuda) == [(0, 1), (0, 1)]


def test_the_clock_sees_captured_steps_too(llama: Path) -> None:
    for when in ("lazy", "off"):
        clock = StepClock(CPU)
        engine = build_captured(llama, [], clock, cuda_graph=when, overlap=True)
        run(engine, [[5, 6]], SamplingParams(temperature=0, max_tokens=6), eos=())
        times = clock.take()
        assert len(times) >= 5
        assert all(time.busy_ms > 0 and time.idle_ms >= 0 for time in times)
        assert not clock.take()
