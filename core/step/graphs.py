"""CUDA graphs: captures decode steps and replays each with one launch instead of hundreds.

    inputs of B sequences ──► padded to the next size ──► static inputs ──► replay ──► static logits [:B]
                               with the padding row         same addresses at each replay

A captured step reads its static inputs, the weights, the page table, keys and values, and the attention
backend's buffers, all of which stay at the same addresses. Padding writes to a page of its own that is not in
the pool, so it does not change the keys of any sequence. All sizes write their logits to one tensor. The next
step may overwrite it, because that step runs after this step's tokens were sampled.

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
from .input_watch import InputWatch
from .tokens import input_ids

logger = logging.getLogger(__name__)

NUM_INPUTS = 5
LOG_INTERVAL_S = 2.0

Forward = Callable[[torch.Tensor, torch.Tensor, ForwardBatch], torch.Tensor]
"""(input ids [T], positions [T], batch) → logits in the model's dtype [T, vocab]."""


class Graph(ABC):
    """Captured work, which `replay` repeats on the current contents of the same tensors."""

    @abstractmethod
    def capture(self, function: Callable[[], None]) -> None:
        """Capture the work of a function. The function may be called more than once."""

    @abstractmethod
    def replay(self) -> None:
        """Repeat the captured work on the current stream."""


class CudaGraph(Graph):
    """A CUDA graph.

    Args:
        pool: memory pool for intermediate tensors; shared by graphs that never run at the same time.
        stream: stream on which to capture.
    """

    def __init__(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._pool = pool
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Callable[[], None]) -> None:
        """Run the function once for its one-time setup, then capture its work."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            function()
        current.wait_stream(self._stream)
        # thread_local: other threads, such as those of grammars, may still do work that cannot be captured.
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
    """Captures and replays decode steps, with one graph per batch size.

    Args:
        sizes: batch sizes of captured steps (numbers of sequences), ascending.
        make_graph: factory of graphs.
        forward: the model's forward pass.
        backend: attention backend, which must support capture.
        page_table: page table of the executor.
        staging: sends arrays to the device.
        last_tokens: last sampled token of each row, on the device. Graphs read it in place.
        vocab_size: width of the logits.
        begin: function to call before each replay.
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
        """Return whether a graph can run a step: each sequence decodes, and the batch is not too large."""
        return step.is_decode and step.num_single <= self._most and not step.scored

    def capture_all(self) -> None:
        """Capture a step of each size, largest first, so that smaller ones reuse the pool's memory."""
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
        """Launch a step by replaying the graph of its size, which is captured first if necessary.

        Args:
            step: step that `serves` accepts.
            changes: changes of the page table, to be written to the device's copy first; None: no changes.
            size: batch size to pad the step to; None: the smallest captured size that fits.

        Returns:
            The logits, float32, which the next call overwrites: [B, vocab]; and the sequences' rows, on the
            device: [B].
        """
        count = len(step.rows)
        if size is None:
            size = next(size for size in self._sizes if size >= count)
        inputs, positions, kv_lens = self._send_inputs(step, changes, size)
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
        watch = InputWatch(batch, self._page_table)
        self._backend.plan(batch)
        if size not in self._graphs:
            self._capture(size, inputs, batch)
        if size in self._graphs:
            self._begin()
            self._graphs[size].replay()
        watch.check()  # of plan and capture: what a replay writes to is not known
        return self._logits[:count], inputs[4, :count]

    def _capture(self, size: int, inputs: torch.Tensor, batch: ForwardBatch) -> None:
        """Capture a step. If that fails, run the step without a graph, and use no graphs from then on."""

        def step() -> None:
            known, sources, positions = inputs[:3]
            ids = input_ids(known, sources, self._last_tokens)
            self._logits[:size].copy_(self._forward(ids, positions, batch))

        graph = self._make_graph()
        try:
            graph.capture(step)
        except RuntimeError as error:  # torch raises it for any failure
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logger.warning("Steps are not captured in CUDA graphs from now on: %s", reason)
            self._most = 0
            self._graphs.clear()
            step()
        else:
            self._graphs[size] = graph

    def _send_inputs(
        self, step: StepInput, changes: tuple[Ints, Pages] | None, size: int
    ) -> tuple[torch.Tensor, Ints, Ints]:
        """Send a step's padded inputs and the changes of the page table to the device in one copy.

        Returns:
            The static inputs on the device (tokens, sources, positions, slots and rows): [5, size]; and, on
            the host, the positions and KV lengths: [size], [size].
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
        sent, places, pages = self._staging.send(stacked, *(changes or (NO_INTS, NO_PAGES)))
        table.write(places, pages)
        inputs = self._ints[: stacked.size].view(stacked.shape)
        inputs.copy_(sent)
        positions = stacked[2, :size]
        return inputs[:, :size], positions, positions + 1


def _stride(size: int) -> int:
    """Round a batch size up such that each row of int64 inputs is aligned to 16 bytes."""
    return size + size % 2
