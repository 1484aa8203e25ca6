"""Writes to a step's inputs are noticed, also where they were sent to another device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.input_watch import InputWatch

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["positions", "slots", "rows", "page_table"])
def test_writes_to_sent_inputs_are_noticed(name: str) -> None:
    staging = Staging(CPU, packs=True)
    with torch.inference_mode():
        table = PageTable(2, 4, 1, staging, CPU)
        positions, ones = np.arange(3), np.ones(3, dtype=np.int64)
        slots, rows = staging.send(positions, ones, counts_writes=True)
        batch = ForwardBatch(positions, slots, ones, ones, rows, table.tensor, 3, 1)
        watch = InputWatch(batch, table)
        watch.check()
        getattr(batch, name)[0] = 5
        with pytest.raises(WrongReturnError, match=rf"wrote to batch.*{name}"):
            watch.check()


def test_arrays_that_are_not_contiguous_are_watched() -> None:
    column = np.arange(6).reshape(3, 2)[:, 0]
    staging = Staging(CPU)
    table = PageTable(2, 4, 1, staging, CPU)
    [slots] = staging.send(np.arange(3))
    watch = InputWatch(ForwardBatch(column, slots, column, column, slots, table.tensor, 3, 1), table)
    watch.check()
    column[1] = 9
    with pytest.raises(WrongReturnError, match=r"wrote to batch\.positions"):
        watch.check()
    assert column.tolist() == [0, 2, 4]
