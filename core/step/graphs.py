"""Steps in which every sequence has one token, captured once and replayed: one launch in place of hundreds.

    numbers of B sequences ──► padded to the next size ──► static inputs ──► replay ──► static logits [:B]
                                rows, slots: padding's       same addresses at each replay

A captured step reads its static inputs, weights, page table, keys and values, and what the attention backend keeps, all
of which stay where they are. Padding has a page of its own, which the pool does not have, so it writes to nobody's keys.
Logits of all sizes go to one tensor: the next step may overwrite them, as it runs after this one's tokens are sampled.

Nothing here knows CUDA but `CudaGraph`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.schedule.plan import BatchPlan

from .device.page_table import PageTable
from .device.staging import Staging
from .numbers import StepNumbers, input_ids

logger = logging.getLogger(__name__)

NUM_INPUTS = 5
LOG_INTERVAL_S = 2.0

Forward = Callable[[torch.Tensor, torch.Tensor, ForwardBatch], torch.Tensor]
"""(input ids [T], positions [T], batch) → logits in the model's dtype [T, vocab]."""


class Graph(ABC):
    """Work that is done again by `replay`, on whatever then stands in the tensors that it read when captured."""

    @abstractmethod
    def capture(self, function: Callable[[], None]) -> None:
        """Capture the work of a function, which may be called more than once."""

    @abstractmethod
    def replay(self) -> None:
        """Do the captured work, on the current stream."""


class CudaGraph(Graph):
    """A graph of CUDA.

    Args:
        pool: where its intermediate tensors live; shared by graphs that never run at once.
        stream: to capture on.
    """

    def __init__(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._pool = pool
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Callable[[], None]) -> None:
        """Run the function once, so that whatever it sets up is set up, then capture it."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            function()
        current.wait_stream(self._stream)
        # Only this thread has to keep to what can be captured: others, as those of grammars, may do what they do.
        capturing = torch.cuda.graph(
            self._graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            with capturing:
                function()
        finally:
            torch.cuda.set_stream(current)  # a capture that fails may leave another one

    def replay(self) -> None:
        """Launch it."""
        self._graph.replay()


def cuda_graphs() -> Callable[[], Graph]:
    """Return the function that makes CUDA graphs which share one pool."""
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    return lambda: CudaGraph(pool, stream)


class DecodeGraphs:
    """Captured steps, by the number of their sequences.

    Args:
        sizes: that steps are captured in, ascending.
        make_graph: makes what captures a step.
        forward: the model.
        backend: can be captured.
        page_table: not shared with the host.
        staging: brings numbers to the device.
        last_tokens: what each row has sampled last, on the device. Read in place.
        vocab_size: width of the logits.
        begin: called before each replay.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        make_graph: Callable[[], Graph],
        forward: Forward,
        backend: AttentionBackend,
        page_table: PageTable,
        staging: Staging,
        last_tokens: torch.Tensor,
        vocab_size: int,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._sizes = sizes
        self._most = sizes[-1]
        self._make_graph = make_graph
        self._forward = forward
        self._backend = backend
        self._page_table = page_table
        self._staging = staging
        self._last_tokens = last_tokens
        self._begin = begin
        self._graphs: dict[int, Graph] = {}
        device = last_tokens.device
        self._ints = torch.zeros(NUM_INPUTS * _stride(sizes[-1]), dtype=torch.long, device=device)
        self._logits = torch.zeros((sizes[-1], vocab_size), dtype=torch.float32, device=device)

    def serves(self, plan: BatchPlan) -> bool:
        """Return whether a step can be launched here: each sequence has one token, and samples the next."""
        return plan.is_decode and plan.num_single <= self._most

    def capture_all(self) -> None:
        """Capture a step of each size, the largest first: the smaller ones then find their memory in the pool."""
        started = told = time.perf_counter()
        logger.info("Capture cuda graph begin. #sizes: %d, up to %d", len(self._sizes), self._most)
        for number, size in enumerate(reversed(self._sizes), 1):
            self.run(StepNumbers.none(), size)
            if not self._most:
                return
            if time.perf_counter() - told > LOG_INTERVAL_S:
                told = time.perf_counter()
                logger.info("Capture cuda graph: %d of %d, %.1f s", number, len(self._sizes), told - started)
        logger.info("Capture cuda graph end. elapsed=%.2f s", time.perf_counter() - started)

    @torch.inference_mode()
    def run(self, numbers: StepNumbers, size: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch a step, which is captured if none of its size is yet.

        Args:
            numbers: of sequences that `serves` says yes to.
            size: to pad it to; None: the next one.

        Returns:
            the logits, float32, which the next call overwrites: [B, vocab]; and the rows: [B].
        """
        count = len(numbers.rows)
        if size is None:
            size = next(size for size in self._sizes if size >= count)
        padded = numbers.padded(size, self._page_table)
        inputs = self._bring(padded, numbers)
        batch = padded.batch(inputs[3], inputs[4], self._page_table, is_static=True)
        self._backend.plan(batch)
        if size not in self._graphs:
            self._capture(size, inputs, batch)
        if size in self._graphs:
            self._begin()
            self._graphs[size].replay()
        return self._logits[:count], inputs[4, :count]

    def _capture(self, size: int, inputs: torch.Tensor, batch: ForwardBatch) -> None:
        """Capture a step. Where that cannot be, it has been run, and no other is captured any more."""

        def step() -> None:
            known, sources, positions = inputs[:3]
            ids = input_ids(known, sources, self._last_tokens)
            self._logits[:size].copy_(self._forward(ids, positions, batch))

        graph = self._make_graph()
        try:
            graph.capture(step)
        except RuntimeError as error:  # torch's, whatever is wrong
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logger.warning("Steps are not captured in CUDA graphs from now on: %s", reason)
            self._most = 0
            self._graphs.clear()
            step()
        else:
            self._graphs[size] = graph

    def _bring(self, padded: StepNumbers, numbers: StepNumbers) -> torch.Tensor:
        """Bring numbers, and what has changed of the page table, to the device by one copy.

        Returns:
            the static inputs: known, sources, positions, slots and rows: [5, size].
        """
        size = len(padded.rows)
        columns = (padded.known, padded.sources, padded.positions, padded.slots, padded.rows)
        stacked = np.zeros((NUM_INPUTS, _stride(size)), dtype=np.int64)
        stacked[:, :size] = columns
        changes = self._page_table.take_changes(numbers.rows, numbers.kv_lens)
        brought, places, pages = self._staging.send(stacked, *changes)
        self._page_table.write(places, pages)
        inputs = self._ints[: stacked.size].view(stacked.shape)
        inputs.copy_(brought)
        return inputs[:, :size]


def _stride(size: int) -> int:
    """Return from where to where the inputs of so many sequences lie: at multiples of 16 bytes."""
    return size + size % 2
