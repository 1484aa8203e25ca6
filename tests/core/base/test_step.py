"""A step is plain data: it can be sent and stored, and its columns say which tokens are sampled."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.core.base.request import SamplingParams, TokenLogprob
from llmfw.core.base.step import (
    AskedProcessors,
    RowCounts,
    RowStart,
    RowTokens,
    ScoredPrompt,
    StateCopies,
    StepInput,
    StepOutput,
    TokenMasks,
    decode,
    encode,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


STEP = StepInput(
    tokens=ints(5, 0, 7, 8, 9, 1, 2, 3),
    sources=ints(-1, 4, -1, -1, -1, -1, -1, -1),
    rows=ints(2, 4, 0, 1),
    starts=ints(10, 20, 0, 30),
    counts=ints(1, 1, 3, 3),
    num_sampled=ints(1, 1, 0, 3),  # the last sequence has two drafts
    num_single=2,
    num_sampling=3,
    page_places=ints(3),
    pages=np.array([9], np.int32),
    row_starts=(
        RowStart(0, 9, SamplingParams(seed=1, logit_bias={3: 1.5}), (1, 2), 5, 0, False, (3,), (4, 4)),
        RowStart(1, 2, SamplingParams(), processors=AskedProcessors(("a/b",), True), fields={"x": [1, "y"]}),
    ),
    row_counts=(RowCounts(2, ints(4, 5), ints(1, 0)),),
    scored=(ScoredPrompt(0, 2, ints(8, 9)),),
    row_tokens=(RowTokens(1, np.array([6, 7], np.int32)),),
    states=StateCopies(ints(5, 3), ints(1, 8), ints(2, 3), ints(2, 33), ints(6, 7)),
)
OUTPUT = StepOutput(
    [1, 2, 3], {0: [TokenLogprob(-1.5, [3], [-0.5])]}, {1: [TokenLogprob(-2.0)]}, [1], {2: "no"}
)
MASKS = TokenMasks((0, 2), np.array([[1, -1], [5, 7]], np.int32))


@pytest.mark.parametrize("part", [STEP, OUTPUT, MASKS], ids=lambda part: type(part).__name__)
def test_step_messages_survive_msgpack(part: StepInput | StepOutput | TokenMasks) -> None:
    again = decode(encode(part), type(part))
    for name in part.__struct_fields__:
        np.testing.assert_equal(_plain(getattr(again, name)), _plain(getattr(part, name)))


def _plain(value: object) -> object:
    """Return a value whose arrays can be compared within other values."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, RowCounts | RowTokens | ScoredPrompt | StateCopies):
        return [_plain(getattr(value, name)) for name in value.__struct_fields__]
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def test_columns_give_each_token_s_place() -> None:
    assert STEP.positions.tolist() == [10, 20, 0, 1, 2, 30, 31, 32]
    assert STEP.token_rows.tolist() == [2, 4, 0, 0, 0, 1, 1, 1]
    assert STEP.kv_lens.tolist() == [11, 21, 3, 33]
    assert not STEP.is_decode


def test_drafts_are_sampled_after_each_of_their_tokens() -> None:
    assert STEP.sampled_rows.tolist() == [2, 4, 1, 1, 1]
    places, rows, positions = STEP.sampled
    assert places.tolist() == [0, 1, 5, 6, 7]
    assert rows.tolist() == STEP.sampled_rows.tolist()
    assert positions.tolist() == [11, 21, 31, 32, 33]


def test_non_plain_data_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="a step holds a object"):
        encode(StepOutput([object()]))  # type: ignore[list-item]
