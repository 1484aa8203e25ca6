"""The logits processors of each page table row, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from llmfw.core.base.described import message_of
from llmfw.core.base.errors import ComponentFailedError, LLMFWError
from llmfw.core.base.request import Request
from llmfw.core.base.step import NO_PROCESSORS, AskedProcessors, Ints, RowStart, RowTokens
from llmfw.core.interfaces.logits_processor import ProcessedRequest

from ..device.staging import Staging
from .isolated_processor import IsolatedProcessor
from .token_history import TokenHistory


def asked_processors(processors: Sequence[IsolatedProcessor], request: Request) -> AskedProcessors:
    """Return the processors that a request uses.

    Raises:
        RequestError: a processor refuses the request.
        ComponentFailedError: a processor failed.
    """
    if not processors:
        return NO_PROCESSORS
    stops = tuple(sorted({*request.eos_token_ids, *request.sampling.stop_token_ids}))
    known = ProcessedRequest(MappingProxyType(request.fields), len(request.prompt), stops)
    asked = [each for each in processors if each.begin(known) is not None]
    return AskedProcessors(tuple(each.name for each in asked), any(each.needs_tokens for each in asked))


class ProcessorRows:
    """The states and tokens of all rows that use logits processors.

    Args:
        processors: processors in the order in which they run.
        max_rows: maximum number of running sequences.
        staging: sends tokens to the device.
        device: device of the logits.

    Attributes:
        processors: processors in the order in which they run.
        history: tokens of the rows with a processor that needs them.
        seeds: seed of each row's request: [max_rows].
        prompt_lens: number of prompt tokens of each row: [max_rows].
        keeps_tokens: whether a processor of the row needs its tokens: [max_rows].
        asks: for each processor, by name, whether each row uses the processor: [max_rows].
        states: for each processor, by name, the state of each row that uses the processor.
        failures: by row, the message for the client if a state could not be created.
    """

    def __init__(
        self, processors: Sequence[IsolatedProcessor], max_rows: int, staging: Staging, device: torch.device
    ) -> None:
        self.processors = tuple(processors)
        self.history = TokenHistory(staging, device)
        self.seeds = np.zeros(max_rows, dtype=np.uint64)
        self.prompt_lens = np.zeros(max_rows, dtype=np.int64)
        self.keeps_tokens = np.zeros(max_rows, dtype=np.bool_)
        self.asks = {each.name: np.zeros(max_rows, dtype=np.bool_) for each in processors}
        self.states: dict[str, dict[int, Any]] = {each.name: {} for each in processors}
        self.failures: dict[int, str] = {}
        self._asking: set[int] = set()

    def start(self, start: RowStart) -> None:
        """Record the processors that a sequence uses, when the sequence gets its row."""
        if start.row in self._asking:
            self._forget(start.row)
        if start.processors.names:
            self._begin(start)

    def keep(self, tokens: Sequence[RowTokens]) -> None:
        """Replace the tokens of some rows."""
        for each in tokens:
            self.history.write(each)

    def ask(self, rows: Ints) -> bool:
        """Return whether any of these rows uses a processor."""
        return bool(self._asking) and not self._asking.isdisjoint(rows.tolist())

    def _begin(self, start: RowStart) -> None:
        row, names = start.row, start.processors.names
        self._asking.add(row)
        self.seeds[row] = np.uint64((start.sampling.seed or 0) & 0xFFFFFFFFFFFFFFFF)
        self.prompt_lens[row] = start.prompt_len
        self.keeps_tokens[row] = start.processors.need_tokens
        fields = MappingProxyType(start.fields)  # a processor must not change what others read
        request = ProcessedRequest(fields, start.prompt_len, start.stop_token_ids)
        for processor in (each for each in self.processors if each.name in names):
            try:
                state = processor.begin(request)
                if state is None:  # it was another one when the request arrived
                    raise ComponentFailedError(f"logits processor {processor.name!r} has lost this request")
            except LLMFWError as error:
                self.failures[row] = message_of(error)
                continue
            self.asks[processor.name][row] = True
            self.states[processor.name][row] = state

    def _forget(self, row: int) -> None:
        self._asking.discard(row)
        self.failures.pop(row, None)
        self.keeps_tokens[row] = False
        self.history.drop(row)
        for name, states in self.states.items():
            self.asks[name][row] = False
            states.pop(row, None)
