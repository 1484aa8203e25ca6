"""An executor's page table is the scheduler's for every step, though only what has changed is sent."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
import torch

from llmfw.core.schedule.clean_entries import CleanEntries
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging

from ....length import of_length
from ...schedule.driver import Driver

CPU = torch.device("cpu")


class Copying(Driver):
    """A driver whose steps change a page table as an executor does, and look at it."""

    def __init__(self, page_size: int, overlap: bool) -> None:
        super().__init__(
            page_size=page_size, num_tokens=160, max_running=6, overlap=overlap, conservativeness=0.05
        )
        staging = Staging(CPU, packs=True)
        self.copy = PageTable(*self.pages.table.shape, page_size, staging, CPU, padding_page=99)
        self.num_copied = self.num_held = 0
        self.model.run = self._checked(self.model.run)  # type: ignore[method-assign]

    def _checked(self, run):  # type: ignore[no-untyped-def]
        def look(plan: BatchPlan) -> list[int]:
            step = plan.step
            changes = self.copy.change(step.page_places, step.pages)
            if changes is not None:
                self.copy.write(*map(torch.from_numpy, changes))
            for row, length in zip(step.rows.tolist(), step.kv_lens.tolist(), strict=True):
                num_pages = -(-length // self.copy.page_size)
                expected = self.pages.table[row, :num_pages]
                assert self.copy.tensor[row, :num_pages].tolist() == expected.tolist()
                slots = self.copy.slots(np.full(length, row), np.arange(length))
                whole = np.repeat(expected, page := self.copy.page_size)[:length]
                assert (slots == whole * page + np.arange(length) % page).all()
                self.num_held += num_pages
            self.num_copied += len(step.pages)
            return run(plan)

        return look


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_copy_equals_the_scheduler_s_page_table(page_size: int, overlap: bool) -> None:
    rng = random.Random(f"{page_size} {overlap}")
    retracted = 0
    for _ in range(of_length(2, 12)):
        driver = Copying(page_size, overlap)
        names = deque(str(i) for i in range(24))
        prefix = [rng.randrange(23) for _ in range(30)]
        while names:
            if rng.random() < 0.3:
                prompt = prefix[: rng.choice([0, 9, 30])] + [
                    rng.randrange(23) for _ in range(rng.randrange(1, 40))
                ]
                driver.add(names.popleft(), prompt, rng.randrange(1, 40), stops=rng.random() < 0.5)
            if rng.random() < 0.02:
                driver.abort(str(rng.randrange(24 - len(names))) if len(names) < 24 else "none")
            driver.step()
        driver.finish()
        assert driver.num_copied < driver.num_held / 3
        assert (driver.copy.tensor[driver.copy.padding_row] == 99).all()
        retracted += driver.scheduler.num_retractions
    assert retracted > 0


def test_only_changed_entries_are_taken() -> None:
    clean = CleanEntries(3)
    rows = np.array([2, 0])
    assert [x.tolist() for x in clean.take(rows, np.array([2, 3]))] == [[2, 2, 0, 0, 0], [0, 1, 0, 1, 2]]
    assert [x.tolist() for x in clean.take(rows, np.array([3, 3]))] == [[2], [2]]
    clean.invalidate(0, 1)
    clean.invalidate(2, 3)
    assert [x.tolist() for x in clean.take(rows, np.array([3, 3]))] == [[0, 0], [1, 2]]
    assert [x.tolist() for x in clean.take(rows, np.array([1, 2]))] == [[], []]


def test_shared_memory_needs_no_copy() -> None:
    table = PageTable(2, 4, 1, Staging(CPU), CPU)
    assert table.change(np.array([6]), np.array([7], np.int32)) is None
    assert table.tensor[1, 2] == 7


@pytest.mark.parametrize("packs", [False, True])
def test_a_spoilt_copy_is_restored(packs: bool) -> None:
    staging = Staging(CPU, packs=packs)
    table = PageTable(2, 4, 1, staging, CPU)
    changes = table.change(np.array([1, 2]), np.array([7, 8], dtype=np.int32))
    if changes:
        table.write(*staging.send(*changes))
    right = table.tensor.clone()
    table.tensor.zero_()
    table.restore()
    assert torch.equal(table.tensor, right)
    assert right[0].tolist() == [0, 7, 8, 0]
