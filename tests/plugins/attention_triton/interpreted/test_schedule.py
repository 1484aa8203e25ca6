"""The pieces that keys are cut into."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.plugins.attention_triton.schedule import PIECE_STEP, Schedule, schedule


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.one_of(st.integers(1, 300), st.integers(1, 50_000)), min_size=1, max_size=5),
    window=st.one_of(st.none(), st.integers(1, 1000)),
    num_spare=st.integers(1, 70),
)
def test_every_visible_key_is_in_one_piece(lengths: list[int], window: int | None, num_spare: int) -> None:
    made = Schedule.empty(len(lengths), num_spare, torch.device("cpu"))
    schedule(torch.tensor(lengths, dtype=torch.int32), window, made)
    firsts = made.firsts.tolist()
    assert firsts[0] == 0
    assert firsts[-1] <= len(made.pieces)
    for sequence, length in enumerate(lengths):
        mine = made.pieces[firsts[sequence] : firsts[sequence + 1]].tolist()
        borders = [max(0, length - (window or length)), *(end for _, _, end, _ in mine)]
        assert borders[-1] == length
        assert [begin for _, begin, _, _ in mine] == borders[:-1]
        assert all(piece[0] == sequence and piece[3] == len(mine) for piece in mine)
        assert all((end - begin) % PIECE_STEP == 0 for _, begin, end, _ in mine[:-1])
