"""A prompt that does not fit into a step stops nobody: neither those that decode nor short prompts that come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.schedule.plan import BatchPlan

from .running import build_engine, generate
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

BUDGET = 32
LONG = [2 + i % (VOCAB_SIZE - 2) for i in range(400)]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@dataclass
class Watched:
    """An engine whose plans are kept, each with how large a piece was allowed to be, and the first events of requests.

    Attributes:
        steps: how much was allowed, and the plan.
        first: the number of the step after which a request had its first token.
    """

    engine: Engine
    steps: list[tuple[int | None, BatchPlan]] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schedule = self.engine._scheduler.schedule

        def watched(*args: object, piece: int | None = None, **kwargs: object) -> BatchPlan:
            plan = schedule(*args, piece=piece, **kwargs)  # type: ignore[arg-type]
            self.steps.append((piece, plan))
            return plan

        self.engine._scheduler.schedule = watched  # type: ignore[method-assign]

    def add(self, name: str, prompt: list[int], max_tokens: int = 4) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0)
        self.engine.add(Request(id=name, prompt=prompt, sampling=sampling))

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            for event in self.engine.step():
                if event.token_ids:
                    self.first.setdefault(event.id, len(self.steps))


def prompt_tokens(plan: BatchPlan, name: str) -> int:
    return sum(p.count for p in plan.parts if p.seq.id == name and p.start < p.seq.prompt_len)


@pytest.mark.parametrize("overlap", [False, True])
def test_short_prompts_overtake_a_long_prefill(llama: Path, overlap: bool) -> None:
    """Meanwhile the long prompt and the running streams make progress."""
    watched = Watched(
        build_engine(
            llama, overlap=overlap, chunked_prefill_size=BUDGET, context_length=512, prefill_stretch=1.5
        )
    )
    for i in range(8):
        watched.add(f"stream {i}", [7 + i, 5, 6], max_tokens=400)
    watched.run(lambda: len(watched.first) == 8)
    watched.add("long", LONG)
    begun = len(watched.steps)
    watched.run(lambda: len(watched.steps) == begun + 5)
    for i in range(3):
        watched.add(f"short {i}", [100 + i] * 10)
    watched.run(lambda: "long" in watched.first)

    beside = watched.steps[begun : watched.first["long"]]
    pieces = [(allowed, prompt_tokens(plan, "long")) for allowed, plan in beside]
    assert all(allowed is not None and count <= allowed <= BUDGET // 2 for allowed, count in pieces)
    assert sum(count for _, count in pieces) == len(LONG)
    assert all(len(plan.sequences) >= 8 for _, plan in beside), "a stream was left out of a step"
    assert max(watched.first[f"short {i}"] for i in range(3)) < begun + 12 < watched.first["long"]
    assert sum(count == 0 for _, count in pieces) <= len(pieces) / 2 + 2, "the long prompt makes no progress"


def test_short_prompts_overtake_even_without_decodes(llama: Path) -> None:
    watched = Watched(
        build_engine(llama, chunked_prefill_size=BUDGET, context_length=512, prefill_stretch=1.5)
    )
    watched.add("long", LONG)
    watched.run(lambda: len(watched.steps) == 2)
    watched.add("short", [5] * 10)
    watched.run(lambda: "short" in watched.first)
    assert watched.first["short"] == 3


def test_a_long_prompt_alone_fills_each_step(llama: Path) -> None:
    watched = Watched(
        build_engine(llama, chunked_prefill_size=BUDGET, context_length=512, prefill_stretch=1.5)
    )
    watched.add("long", LONG)
    watched.run(lambda: "long" in watched.first)
    assert [plan.num_tokens for _, plan in watched.steps] == [BUDGET] * 12 + [16]


def test_without_stretch_limit_a_prompt_fills_the_budget(llama: Path) -> None:
    watched = Watched(build_engine(llama, chunked_prefill_size=BUDGET, context_length=512, prefill_stretch=0))
    watched.add("stream", [5], max_tokens=400)
    watched.run(lambda: "stream" in watched.first)
    watched.add("long", LONG)
    watched.run(lambda: "long" in watched.first)
    assert [plan.num_tokens for _, plan in watched.steps[1:]] == [BUDGET + 1] * 12 + [17]


def test_chunked_long_prompts_give_the_same_text(llama: Path) -> None:
    requests = [Request(id="long", prompt=LONG, sampling=SamplingParams(max_tokens=20, seed=3))]
    streams = [
        Request(id=str(i), prompt=[i + 2], sampling=SamplingParams(max_tokens=200, seed=i)) for i in range(4)
    ]
    expected = generate(build_engine(llama, context_length=512), requests)[0].token_ids
    engine = build_engine(llama, context_length=512, chunked_prefill_size=BUDGET)
    assert generate(engine, [*streams, *requests])[-1].token_ids == expected
