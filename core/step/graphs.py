"""CUDA graphs: captures decode steps and replays each with one launch instead of hundreds.

    inputs of B sequences ──► padded to the next size ──► static inputs ──► replay ──► static logits [:B]
                               with the padding row         same addresses at each replay

A captured step reads its static inputs, the weights, the page table, keys and values, and the attention
backend's buffers, all of which stay at the same addresses. Padding writes to a separate page that is not in
the pool, so padding does not change the keys of any sequence. All sizes write their logits to one tensor. The
next step may overwrite the tensor, because the next step runs after this step's tokens were sampled.

Only `CudaGraph` depends on CUDA.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from llmfw.core.base.described import described, message_of
from llmfw.core.base.step import NO_INTS, NO_PAGES, NO_STEP, NOT_IN_FLIGHT, Ints, Pages, StepInput
from llmfw.core.imports.garbage import paused
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.model.device.devices import raise_if_lost
from llmfw.core.plugin.containment import contained

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


class GraphMemory:
    """The memory pool and the stream of CUDA graphs that never run at the same time, on the current device.

    Attributes:
        pool: handle of the pool for intermediate tensors.
        stream: stream on which to capture.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        self._failed: list[torch.cuda.CUDAGraph] = []

    def recover(self, graph: torch.cuda.CUDAGraph) -> None:
        """Make torch's allocator usable after the capture of a graph has failed.

        If CUDA invalidates a capture, for example because the host waited for the device, torch 2.11 keeps
        allocating to the graph's pool. From then on, `empty_cache` fails, and so does every further capture.
        """
        device = torch.cuda.current_device()
        try:
            torch._C._cuda_endAllocateToPool(device, self.pool)
        except (AttributeError, RuntimeError):  # torch has already ended it (the usual case)
            return
        torch._C._cuda_releasePool(device, self.pool)
        # The allocator of pinned memory also still refers to the graph and its pool. Only torch can end this.
        self._failed.append(graph)
        self.pool = torch.cuda.graph_pool_handle()


class CudaGraph(Graph):
    """A CUDA graph.

    Args:
        memory: memory and stream; shared by graphs that never run at the same time.
    """

    def __init__(self, memory: GraphMemory) -> None:
        self._memory = memory
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Callable[[], None]) -> None:
        """Run the function once for its one-time setup, then capture its work.

        Raises:
            BaseException: the function's exception, or torch's. Streams and memory can be used as before.
        """
        current, stream = torch.cuda.current_stream(), self._memory.stream
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                function()
        finally:
            # Even the work of a failed function writes to tensors that other code uses.
            current.wait_stream(stream)
        first: BaseException | None = None
        try:
            # thread_local: other threads, such as grammar threads, may still do work that cannot be captured.
            with torch.cuda.graph(
                self._graph, pool=self._memory.pool, stream=stream, capture_error_mode="thread_local"
            ):
                try:
                    function()
                except BaseException as error:
                    first = error  # ending the capture may then fail, too, with a less useful error
                    raise
        except BaseException as error:
            self._memory.recover(self._graph)
            if first is None or first is error:
                raise
            raise first from None
        finally:
            first = None  # else the exception and this frame refer to each other and keep the tensors
            torch.cuda.set_stream(current)  # a failed capture may leave another stream current

    def replay(self) -> None:
        """Launch the graph."""
        self._graph.replay()


def cuda_graphs() -> Callable[[], Graph]:
    """Return a factory of CUDA graphs that share their memory, on the current device."""
    memory = GraphMemory()
    return lambda: CudaGraph(memory)


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
        begin: function to call before each step is launched.
        describe: function that returns a description of the cause of a failed capture, for the log.

    If a capture fails, steps of all sizes run without graphs from then on. But if the capture runs out of
    memory, only steps of the same size or larger run without graphs, and the larger graphs are dropped to
    free memory.
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
        describe: Callable[[Exception], str] = described,
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
        self._describe = describe
        self._reason = ""  # why a capture failed, if not logged yet
        self._lacks_memory = False
        self._graphs: dict[int, Graph] = {}
        device = last_tokens.device
        self._ints = torch.zeros(NUM_INPUTS * _stride(sizes[-1]), dtype=torch.long, device=device)
        self._logits = torch.zeros((sizes[-1], vocab_size), dtype=torch.float32, device=device)

    def serves(self, step: StepInput) -> bool:
        """Return whether a graph can run a step.

        Each sequence decodes without an adapter, and the batch is not too large.
        """
        return step.is_decode and step.num_single <= self._most and not step.scored and not len(step.adapters)

    def capture_all(self) -> None:
        """Capture a step of each size, largest first, so that smaller steps reuse the pool's memory."""
        started = told = time.perf_counter()
        sizes = self._sizes
        logger.info("Capture cuda graph begin. #sizes: %d, up to %d", len(sizes), self._most)
        for number, size in enumerate(reversed(sizes), 1):
            self.run(NO_STEP, None, size)
            if not self._most and not self._lacks_memory:
                break
            if time.perf_counter() - told > LOG_INTERVAL_S:
                told = time.perf_counter()
                logger.info("Capture cuda graph: %d of %d, %.1f s", number, len(sizes), told - started)
        self._warn()
        logger.info(
            "Capture cuda graph end. #graphs: %d, elapsed=%.2f s",
            *(len(self._graphs), time.perf_counter() - started),
        )

    @torch.inference_mode()
    def run(
        self, step: StepInput, changes: tuple[Ints, Pages] | None = None, size: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch a step by replaying the graph of its size. If necessary, capture the graph first.

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
        if size in self._graphs:
            self._backend.plan(batch)
        else:
            self._capture(size, inputs, batch)
        if size in self._graphs:
            self._begin()
            self._graphs[size].replay()
        elif count:
            self._warn()
            eager = replace(batch, is_static=False)
            self._backend.plan(eager)
            self._begin()
            self._compute(size, inputs, eager)
        watch.check()  # checks plan and capture; writes during a replay go unnoticed
        return self._logits[:count], inputs[4, :count]

    def _compute(self, size: int, inputs: torch.Tensor, batch: ForwardBatch) -> None:
        """Compute the logits of a step from its static inputs."""
        known, sources, positions = inputs[:3]
        ids = input_ids(known, sources, self._last_tokens)
        self._logits[:size].copy_(self._forward(ids, positions, batch))

    def _capture(self, size: int, inputs: torch.Tensor, batch: ForwardBatch) -> None:
        """Plan and capture a step. On failure, drop the sizes that can no longer be captured.

        Raises:
            Exception: the exception of the capture, if the device cannot continue.
        """
        try:
            graph = self._make_graph()
            self._backend.plan(batch)
            # Garbage collection could free the graphs of an earlier engine, which breaks a capture.
            with paused():
                graph.capture(lambda: self._compute(size, inputs, batch))
        except BaseException as caught:  # a plugin may raise anything; steps then run without graphs
            error = contained(caught)
            raise_if_lost(self._last_tokens.device, error)
            logger.debug("The capture of %d sequences failed", size, exc_info=error)
            self._reason = self._describe(error).strip().splitlines()[0]
            self._lacks_memory = _is_out_of_memory(error)
            self._sizes = [each for each in self._sizes if self._lacks_memory and each < size]
            del error  # the frames of the exception refer to this frame and to the step's tensors
        else:
            self._graphs[size] = graph
            return
        self._most = max(self._sizes, default=0)
        self._graphs = {each: graph for each, graph in self._graphs.items() if each <= self._most}

    def _warn(self) -> None:
        """Log a warning about the last failed capture, once."""
        if not self._reason:
            return
        if self._most:
            logger.warning(
                "Steps of more than %d sequences are not captured in CUDA graphs from now on: %s; to leave memory for "
                "them, lower --mem-fraction-static or --max-total-tokens",
                *(self._most, self._reason),
            )
        else:
            logger.warning("Steps are not captured in CUDA graphs from now on: %s", self._reason)
        self._reason = ""

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
            step.rotary[0] if len(step.rotary) else step.starts,
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
        if len(step.rotary):
            positions = np.zeros(size, dtype=np.int64)
            positions[:count] = step.starts
        return inputs[:, :size], positions, positions + 1


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether a GPU ran out of memory: torch's error, or a driver error, which has no class."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message_of(error).lower()


def _stride(size: int) -> int:
    """Round a batch size up so that each row of int64 inputs is aligned to 16 bytes."""
    return size + size % 2
