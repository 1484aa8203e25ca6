"""Runs logits processors on the rows of a step that use them.

Each processor gets a copy of its rows' logits, and the result is written back. The host does not wait: the
device finds the faulty rows, and their flags are copied to the host with the sampled tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.step import Ints
from llmfw.core.interfaces.logits_processor import ProcessedRows
from llmfw.core.plugin.returned import WrongReturnError

from ..device.staging import Staging
from ..sampling.randomness import uniform
from .isolated_processor import IsolatedProcessor, settle
from .processor_rows import ProcessorRows

SLICE_ELEMENTS = 1 << 24
"""Maximum number of logits that a processor gets in one call."""

ASKED_TOKENS = "rows.tokens() was called by a processor whose needs_tokens is False; set it to True"


@dataclass(frozen=True, slots=True)
class FaultCheck:
    """Check of the logits that a processor has returned for some rows.

    Attributes:
        processor: the processor.
        places: index of each row among the S sampled tokens, on the host: [R].
        are_faulty: whether each row is faulty, on any device: [R].
    """

    processor: IsolatedProcessor
    places: Ints
    are_faulty: torch.Tensor


class Processing:
    """The logits processors of one step. Call `apply` with the logits, then `append` with the sampled tokens.

    Args:
        table: logits processors of all rows.
        staging: sends arrays to the device.
        rows: page table row of each token to sample: [S].
        positions: position of each token to sample: [S].

    Attributes:
        failures: error messages for clients, by index among the S sampled tokens, if a processor has raised.
        checks: checks whose results are on the device.
    """

    def __init__(self, table: ProcessorRows, staging: Staging, rows: Ints, positions: Ints) -> None:
        self.failures = {
            place: table.failures[row] for place, row in enumerate(rows.tolist()) if row in table.failures
        }
        self.checks: list[FaultCheck] = []
        self._table = table
        self._staging = staging
        self._rows = rows
        self._positions = positions

    def apply(self, logits: torch.Tensor) -> None:
        """Change the logits of the rows that use processors, in place.

        Args:
            logits: logits of the tokens to sample, float32: [S, vocab].
        """
        size = max(1, SLICE_ELEMENTS // logits.shape[-1])
        for processor in self._table.processors:
            places = np.flatnonzero(self._table.asks[processor.name][self._rows])
            for first in range(0, len(places), size):
                self._apply(processor, logits, places[first : first + size])

    def append(self, tokens: torch.Tensor) -> None:
        """Append the sampled tokens to the token history that processors need.

        Args:
            tokens: sampled tokens, on the device: [S].
        """
        places = np.flatnonzero(self._table.keeps_tokens[self._rows])
        if len(places):
            (at,) = self._staging.send(places)
            self._table.history.append(self._rows[places], self._positions[places], tokens[at])

    def _apply(self, processor: IsolatedProcessor, logits: torch.Tensor, places: Ints) -> None:
        (at,) = self._staging.send(places)
        before = logits.index_select(0, at)
        after, are_faulty = settle(before, self._process(processor, before, places))
        logits.index_copy_(0, at, after)
        self.checks.append(FaultCheck(processor, places, are_faulty))

    def _process(self, processor: IsolatedProcessor, before: torch.Tensor, places: Ints) -> torch.Tensor:
        """Return a processor's logits. If the processor raises, call it again for each row alone.

        This finds the rows that make the processor raise. These rows keep their logits.
        """
        try:
            return processor.process(before, self._part(processor, places))
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is logged
            if len(places) == 1:
                self.failures[int(places[0])] = processor.fail(error)
                return before
            num_failed = len(self.failures)
            found = [
                self._process(processor, before[i : i + 1], places[i : i + 1]) for i in range(len(places))
            ]
            if len(self.failures) == num_failed:
                processor.fail(error)
            return torch.cat(found)

    def _part(self, processor: IsolatedProcessor, places: Ints) -> StepRows:
        return StepRows(processor, self._table, self._staging, self._rows[places], self._positions[places])


class StepRows(ProcessedRows):
    """Some rows of a step, as a logits processor sees them.

    Args:
        processor: the processor.
        table: logits processors of all rows.
        staging: sends arrays to the device.
        rows: page table row of each row: [R].
        positions: position of each row's token to sample: [R].
    """

    def __init__(
        self,
        processor: IsolatedProcessor,
        table: ProcessorRows,
        staging: Staging,
        rows: Ints,
        positions: Ints,
    ) -> None:
        states = table.states[processor.name]
        self.states: Sequence[Any] = [states[row] for row in rows.tolist()]
        self.prompt_lens = table.prompt_lens[rows]
        self.positions = positions
        self._processor = processor
        self._table = table
        self._staging = staging
        self._rows = rows

    def tokens(self) -> torch.Tensor:
        if not self._processor.needs_tokens:
            raise WrongReturnError(ASKED_TOKENS)
        return self._table.history.read(self._rows, self.positions)

    def uniform(self, stream: int = 0) -> torch.Tensor:
        seeds = self._table.seeds[self._rows] ^ salt_of(self._processor.name, stream)
        return self._staging.send(uniform(seeds, self.positions))[0]

    def send(self, *arrays: npt.NDArray[Any]) -> list[torch.Tensor]:
        return self._staging.send(*arrays)


def salt_of(name: str, stream: int) -> np.uint64:
    """Return a salt that separates a stream's random numbers from all other streams of a request."""
    digest = hashlib.blake2b(f"{name} {stream}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
