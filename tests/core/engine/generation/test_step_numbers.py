"""A step's numbers are the same whether all its sequences decode or prompts stand beside them."""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.schedule.clean_places import CleanPlaces
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.sequence_table import SequenceTable
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.numbers import StepNumbers

COLUMNS = ("known", "sources", "positions", "slots", "rows", "query_lens", "kv_lens")
NUM = 5


def sequence(number: int, table: SequenceTable, num_output: int) -> SequenceState:
    request = Request(
        id=str(number), prompt=[10 * number + i for i in range(7)], sampling=SamplingParams(max_tokens=9)
    )
    seq = SequenceState(request, number, None, table)
    seq.output += [100 * number + i for i in range(num_output)]
    return seq


def test_sequences_that_decode_have_the_numbers_that_they_have_beside_a_prompt() -> None:
    table = SequenceTable()
    host = np.random.default_rng(0).permutation(60).astype(np.int32).reshape(6, 10)
    pages = PageTable(host, CleanPlaces(6), 4, torch.device("cpu"))
    # The token of sequence 3 is in flight; that of sequence 4 is its prompt's last one.
    starts = [7 + i for i in range(NUM - 1)] + [6]
    outputs = [*range(1, NUM - 1), NUM - 2, 0]
    decoding = [
        PlannedSequence(sequence(i, table, outputs[i]), NUM - i, starts[i], 1, True, False, False)
        for i in range(NUM)
    ]
    prompt = PlannedSequence(sequence(9, table, 0), 0, 0, 7, True, True, True)
    alone = StepNumbers.of(BatchPlan.of(decoding), pages)
    beside = StepNumbers.of(BatchPlan.of([*decoding, prompt]), pages)
    assert alone.sources.tolist() == [-1, -1, -1, NUM - 3, -1]
    assert alone.known.tolist() == [0, 101, 202, 0, 46]
    for name in COLUMNS:
        assert getattr(beside, name)[:NUM].tolist() == getattr(alone, name).tolist(), name
