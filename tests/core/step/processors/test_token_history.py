"""The tokens of rows on the device are those that were written and sampled, whatever rows come and go."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from llmfw.core.base.step import RowTokens
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.processors.token_history import TokenHistory

CPU = torch.device("cpu")


def test_a_history_equals_a_list() -> None:
    rng = random.Random(0)
    history, expected = TokenHistory(Staging(CPU, packs=True), CPU), dict[int, list[int]]()
    for _ in range(300):
        row = rng.randrange(40)
        if rng.random() < 0.3 or not expected:
            tokens = [rng.randrange(1000) for _ in range(rng.choice([1, 9, 300, 700]))]
            history.drop(row)
            history.write(RowTokens(row, np.array(tokens, dtype=np.int32)))
            expected[row] = tokens
        elif rng.random() < 0.1:
            history.drop(row)
            expected.pop(row, None)
        else:
            rows = rng.sample(sorted(expected), rng.randrange(1, len(expected) + 1))
            new = [rng.randrange(1000) for _ in rows]
            ends = np.array([len(expected[each]) for each in rows])
            history.append(np.array(rows), ends, torch.tensor(new))
            for each, token in zip(rows, new, strict=True):
                expected[each].append(token)
        check(history, expected, rng)


def check(history: TokenHistory, expected: dict[int, list[int]], rng: random.Random) -> None:
    rows = rng.sample(sorted(expected), len(expected))
    if not rows:
        return
    lengths = np.array([len(expected[row]) for row in rows])
    found = history.read(np.array(rows), lengths).tolist()
    width = int(lengths.max())
    assert found == [expected[row] + [-1] * (width - len(expected[row])) for row in rows]


def test_tokens_that_were_never_written_are_refused() -> None:
    history = TokenHistory(Staging(CPU), CPU)
    history.write(RowTokens(3, np.array([1, 2], dtype=np.int32)))
    with pytest.raises(ValueError, match="5000 tokens"):
        history.read(np.array([3]), np.array([5000]))
