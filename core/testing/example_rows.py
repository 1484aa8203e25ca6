"""Rows of a step for tests of logits processors, with a small vocabulary."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.interfaces.logits_processor import ProcessedRequest, ProcessedRows, ProcessorContext
from llmfw.core.step.processors.processing import salt_of
from llmfw.core.step.sampling.randomness import uniform

CPU = torch.device("cpu")
ALPHABET = (
    *(chr(code) for code in range(32, 127)),
    "\n",
    "\t",
    " the",
    " and",
    "ing",
    "é",
    "漢",
    '":',
    "\n\n",
)


class ExampleContext(ProcessorContext):
    """A vocabulary on the CPU: characters, some words, and ids without a token.

    Args:
        vocab_size: width of the logits.
    """

    def __init__(self, vocab_size: int = 128) -> None:
        self.vocab_size = vocab_size
        self.device = CPU

    def token_bytes(self, token_id: int) -> bytes:
        return ALPHABET[token_id].encode() if token_id < len(ALPHABET) else b""


@dataclass(frozen=True)
class ExampleRow:
    """A row of a step.

    Attributes:
        fields: the request's fields.
        tokens: tokens of the prompt and the output.
        logits: logits of the next token, float32: [vocab].
        num_output: number of these tokens that belong to the output.
        seed: seed of the request.
    """

    fields: Mapping[str, Any]
    tokens: Sequence[int]
    logits: torch.Tensor
    num_output: int = 1
    seed: int = 0

    @property
    def request(self) -> ProcessedRequest:
        """The row's request."""
        return ProcessedRequest(copy.deepcopy(self.fields), len(self.tokens) - self.num_output, (1,))

    def draw(self, stream: int = 0) -> float:
        """Return the row's random number, as `rows.uniform(stream)` does."""
        return float(ExampleRows([self], [None]).uniform(stream)[0])


Reference = Callable[[ExampleRow, Callable[..., float]], Sequence[float]]
"""A function of a row and of `draw(stream)` that returns the row's logits."""


class ExampleRows(ProcessedRows):
    """Rows for tests, with the random numbers that a server gives them.

    Args:
        rows: the rows.
        states: the state that `begin` returned for each row.
    """

    def __init__(self, rows: Sequence[ExampleRow], states: Sequence[Any]) -> None:
        self.states = states
        self.positions = np.array([len(row.tokens) for row in rows], dtype=np.int64)
        self.prompt_lens = self.positions - np.array([row.num_output for row in rows], dtype=np.int64)
        self._rows = rows

    def tokens(self) -> torch.Tensor:
        width = int(self.positions.max())
        return torch.tensor([[*row.tokens, *[-1] * (width - len(row.tokens))] for row in self._rows])

    def uniform(self, stream: int = 0) -> torch.Tensor:
        seeds = np.array([row.seed for row in self._rows], dtype=np.uint64)
        return torch.from_numpy(uniform(seeds ^ salt_of("tests/example", stream), self.positions))

    def send(self, *arrays: npt.NDArray[Any]) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in arrays]
