"""Captures steps in which every sequence has one token, and replays them: one launch instead of hundreds.

    numbers of B sequences ──► padded to the next size ──► static inputs ──► replay ──► static logits [:B]
                                rows, slots: padding's       same addresses at each replay

A captured step reads its static inputs, weights, page table, keys and values, and the attention backend's buffers, all of
which stay at the same addresses. Padding writes to a page of its own, which is not in the pool, so it changes no sequence's
keys. Logits of all sizes go to one tensor: the next step may overwrite them, because it runs after this step's tokens are
sampled.

Only `CudaGraph` depends on CUDA.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from llmfw.core.base.step import NO_INTS, NO_PAGES, NO_STEP, NOT_IN_FLIGHT, Ints, Pages, StepInput
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch

from .device.page_table import PageTable
from .device.staging import Staging
from .tokens import input_ids

logger = logging.getLogger(__name__)

NUM_INPUTS = 5
LOG_INTERVAL_S = 2.0

Forward = Callable[[torch.Tensor, torch.Tensor, ForwardBatch], torch.Tensor]
"""(input ids [T], positions [T], batch) → logits in the model's dtype [T, vocab]."""


class Graph(ABC):
    """Work that `replay` repeats, on the current contents of the tensors that it read during capture."""

    @abstractmethod
    def capture(self, function: Callable[[], None]) -> None:
        """Capture the work of a function, which may be called more than once."""

    @abstractmethod
    def replay(self) -> None:
        """Repeat the captured work on the current stream."""


class CudaGraph(Graph):
    """A CUDA graph.

    Args:
        pool: memory pool of its intermediate tensors; shared by graphs that never run at once.
        stream: stream to capture on.
    """

    def __init__(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._pool = pool
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Callable[[], None]) -> None:
        """Run the function once, for its one-time setup, then capture it."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            function()
        current.wait_stream(self._stream)
        # Only this thread is limited to work that can be captured: others, such as grammars' threads, are not.
        capturing = torch.cuda.graph(
            self._graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            with capturing:
                function()
        finally:
            torch.cuda.set_stream(current)  # a failed capture may leave another stream current

    def replay(self) -> None:
        """Launch the graph."""
        self._graph.replay()


def cuda_graphs() -> Callable[[], Graph]:
    """Return a factory of CUDA graphs that share one memory pool."""
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    return lambda: CudaGraph(pool, stream)


class DecodeGraphs:
    """Captured steps, by the number of their sequences.

    Args:
        sizes: sizes of captured steps, ascending.
        make_graph: factory of graphs.
        forward: the model's forward pass.
        backend: attention backend, which supports capture.
        page_table: page table of the executor.
        staging: sends numbers to the device.
        last_tokens: last sampled token of each row, on the device. Read in place.
        vocab_size: width of the logits.
        begin: function called before each replay.
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

    def serves(self, step: StepInput) -> bool:
        """Return whether a step can be launched here: each sequence has one token, and samples the next."""
        return step.is_decode and step.num_single <= self._most and not step.scored

    def capture_all(self) -> None:
        """Capture a step of each size, the largest first: the smaller ones then find their memory in the pool."""
        started = told = time.perf_counter()
        logger.info("Capture cuda graph begin. #sizes: %d, up to %d", len(self._sizes), self._most)
        for number, size in enumerate(reversed(self._sizes), 1):
            self.run(NO_STEP, None, size)
            if not self._most:
                return
            if time.perf_counter() - told > LOG_INTERVAL_S:
                told = time.perf_counter()
                logger.info("Capture cuda graph: %d of %d, %.1f s", number, len(self._sizes), told - started)
        logger.info("Capture cuda graph end. elapsed=%.2f s", time.perf_counter() - started)

    @torch.inference_mode()
    def run(
        self, step: StepInput, changes: tuple[Ints, Pages] | None = None, size: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch a step, which is captured if none of its size is yet.

        Args:
            step: one that `serves` accepts.
            changes: of the page table, to be written on the device first.
            size: sequences to pad it to; None: the next size.

        Returns:
            the logits, float32, which the next call overwrites: [B, vocab]; and the rows: [B].
        """
        count = len(step.rows)
        if size is None:
            size = next(size for size in self._sizes if size >= count)
        inputs, positions, kv_lens = self._bring(step, changes, size)
        batch = ForwardBatch(
            positions=positions,
            slots=inputs[3],
            query_lens=np.ones(size, dtype=np.int64),
            kv_lens=kv_lens,
            rows=inputs[4],
            page_table=self._page_table.tensor,
            num_single=size,
            page_size=self._page_table.page_size,
            is_static=True,
        )
        self._backend.plan(batch)
        if size not in self._graphs:
            self._capture(size, inputs, batch)
        if size in self._graphs:
            self._begin()
            self._graphs[size].replay()
        return self._logits[:count], inputs[4, :count]

    def _capture(self, size: int, inputs: torch.Tensor, batch: ForwardBatch) -> None:
        """Capture a step. If that fails, run it without a graph, and capture no more steps."""

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

    def _bring(
        self, step: StepInput, changes: tuple[Ints, Pages] | None, size: int
    ) -> tuple[torch.Tensor, Ints, Ints]:
        """Send the numbers of a step, padded, and changes of the page table to the device in one copy.

        Returns:
            The static inputs: tokens, sources, positions, slots and rows: [5, size]; on the host, positions and lengths of
            keys and values: [size], [size].
        """
        count, table = len(step.rows), self._page_table
        stacked = np.zeros((NUM_INPUTS, _stride(size)), dtype=np.int64)
        stacked[:, :count] = (
            step.tokens,
            step.sources,
            step.starts,
            table.slots(step.rows, step.starts),
            step.rows,
        )
        stacked[1, count:size] = NOT_IN_FLIGHT
        stacked[3, count:size] = table.padding_slot
        stacked[4, count:size] = table.padding_row
        brought, places, pages = self._staging.send(stacked, *(changes or (NO_INTS, NO_PAGES)))
        table.write(places, pages)
        inputs = self._ints[: stacked.size].view(stacked.shape)
        inputs.copy_(brought)
        positions = stacked[2, :size]
        return inputs[:, :size], positions, positions + 1


def _stride(size: int) -> int:
    """Return the distance of the inputs of `size` sequences, so that each starts at a multiple of 16 bytes."""
    return size + size % 2
