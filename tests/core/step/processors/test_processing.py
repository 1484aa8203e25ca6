"""What a processor returns is checked row by row, and its random numbers are the request's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from llmfw.core.base.request import SamplingParams
from llmfw.core.base.step import AskedProcessors, RowStart
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.processors import processing
from llmfw.core.step.processors.isolated_processor import ChosenProcessor, IsolatedProcessor, settle
from llmfw.core.step.processors.processing import Processing, StepRows, salt_of
from llmfw.core.step.processors.processor_rows import ProcessorRows
from llmfw.core.step.sampling.randomness import uniform
from llmfw.core.testing.logits_processors import ExampleContext

from ....doubles.steering_processor import Faulty

CPU = torch.device("cpu")
STAGING = Staging(CPU)
FORBIDDEN = -torch.inf


def isolated(name: str = "faulty") -> IsolatedProcessor:
    entry = Entry("logits_processor", name, f"{Faulty.__module__}:Faulty", "tests", "llmfw-tests", "1.0")
    return IsolatedProcessor(
        ChosenProcessor(entry, Faulty(ExampleContext(), Faulty.Options())), ComponentCalls(entry)
    )


def table(seeds: list[int], faults: list[str]) -> ProcessorRows:
    rows = ProcessorRows([isolated()], 16, STAGING, CPU)
    for row, (seed, fault) in enumerate(zip(seeds, faults, strict=True)):
        asked = AskedProcessors(("tests/faulty",))
        rows.start(RowStart(row, 4, SamplingParams(seed=seed), processors=asked, fields={"fault": fault}))
    return rows


def test_faulty_rows_keep_their_logits() -> None:
    before = torch.tensor([[1.0, 2, FORBIDDEN]] * 5 + [[torch.nan, 1, 1]] + [[FORBIDDEN] * 3])
    after = torch.tensor(
        [
            [5.0, 6, 7],
            [torch.nan, 1, 1],
            [torch.inf, 1, 1],
            [FORBIDDEN, FORBIDDEN, 3],
            [FORBIDDEN, 4, 4],
            [1, 1, 1],
            [1, 1, 1],
        ]
    )
    found, are_faulty = settle(before, after)
    assert are_faulty.tolist() == [False, True, True, True, False, False, False]
    assert found[[0, 4]].tolist() == [[5, 6, FORBIDDEN], [FORBIDDEN, 4, FORBIDDEN]]
    assert torch.equal(found[[1, 2, 3, 6]], before[[1, 2, 3, 6]])
    assert found[5].isnan().any()


def test_large_steps_are_processed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "SLICE_ELEMENTS", 20)
    rows = np.arange(7)
    step = Processing(table([1] * 7, ["none"] * 6 + ["nan"]), STAGING, rows, rows + 4)
    step.apply(torch.zeros(7, 8))
    assert [len(check.places) for check in step.checks] == [2, 2, 2, 1]
    assert [check.are_faulty.any().item() for check in step.checks] == [False, False, False, True]


def test_random_numbers_depend_on_seed_position_and_stream() -> None:
    rows = np.array([2, 0, 1])
    positions = np.array([9, 9, 30])
    part = StepRows(isolated(), table([7, 8, 7], ["none"] * 3), STAGING, rows, positions)
    first, second = part.uniform(), part.uniform(1)
    assert torch.equal(first, part.uniform())
    assert first[0] == first[1] != first[2]  # the seed and the position are the same
    assert not (first == second).any()
    own = torch.from_numpy(uniform(np.array([7], dtype=np.uint64), np.array([9])))
    assert first[0] != own[0]  # which samples the token
    assert salt_of("a/b", 0) != salt_of("a/c", 0)


def test_a_row_forgets_its_predecessors_processors() -> None:
    rows = table([1, 2], ["none", "none"])
    assert rows.ask(np.array([1, 5]))
    rows.start(RowStart(1, 4, SamplingParams(seed=3)))
    assert not rows.ask(np.array([1, 5]))
    assert not rows.asks["tests/faulty"][1]
    assert rows.states["tests/faulty"].keys() == {0}


def test_a_request_that_cannot_begin_again_fails() -> None:
    rows = table([1], ["begin"])
    step = Processing(rows, STAGING, np.array([0]), np.array([4]))
    assert step.failures.keys() == {0}
    assert "failed on this request" in step.failures[0]
