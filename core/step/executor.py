"""Computes steps on a device: `StepInput` in, `StepOutput` out.

A step has two halves, the forward pass and sampling. During the forward pass, the host can compute the
grammars' masks, which only sampling needs. Neither half waits for the device. The last sampled token of each
row stays on the device, so the next step can be launched before this step's tokens have reached the host.

An executor handles rows, pages and tokens. It does not depend on requests, and shares no mutable data with
the scheduler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from llmfw.core.base.described import described
from llmfw.core.base.step import (
    NOT_IN_FLIGHT,
    Ints,
    SampledTokens,
    ScoredPrompt,
    StepInput,
    StepOutput,
    TokenMasks,
)
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.state_storage import StateStorage
from llmfw.core.model.attention.hf_attention import AttentionStep, Layers
from llmfw.core.model.images.image_encoder import PlacedRows
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.states.row_states import RowStates, parts_of

from .asked_logprobs import AskedLogprobs
from .device.page_table import PageTable
from .device.staging import Staging
from .device.step_clock import StepClock
from .graphs import DecodeGraphs, Graph
from .image_store import ImageStore
from .input_watch import InputWatch
from .pending import PendingOutput
from .processors.processing import Processing
from .processors.processor_rows import ProcessorRows
from .sampling.sampler import Sampler
from .tokens import input_ids
from .torch_defaults import TorchDefaults


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Result of the first half of a step, the forward pass.

    Attributes:
        step: input of the step.
        sampled: the step's sampled tokens, on the host.
        logits: logits from which to sample, float32: [S, vocab].
        prompt_logits: logits of scored prompt tokens, in the model's dtype: [P, vocab]; None: no such tokens.
        rows: page table row of each sampled token, on the device: [S].
    """

    step: StepInput
    sampled: SampledTokens
    logits: torch.Tensor
    prompt_logits: torch.Tensor | None
    rows: torch.Tensor


class Executor:
    """Computes steps with a model, an attention backend and a sampler on one device.

    Callers must hold `torch.inference_mode()`.

    Args:
        model: loaded and probed model.
        backend: attention backend, built for the model's layers.
        sampler: sampler with a row for each row of the page table.
        page_table: page table, which no other object changes.
        staging: sends arrays to the device.
        device: device on which steps run.
        clock: measures the steps; None: steps are not measured.
        users: function that returns a description, for the log, of the components whose code runs in steps or
            between steps.
        processors: logits processors of the rows; None: there are no logits processors.
        states: states of the rows' sequences, and snapshots; None: the model keeps no states.
        read_ids: returns the input tokens of a step with tokens in flight; see `input_ids`.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackend,
        sampler: Sampler,
        page_table: PageTable,
        staging: Staging,
        device: torch.device,
        clock: StepClock | None = None,
        users: Callable[[], str] = lambda: "a plugin",
        processors: ProcessorRows | None = None,
        states: StateStorage | None = None,
        read_ids: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = input_ids,
    ) -> None:
        self._model = model
        self._layers: Layers = model.layers
        if states is not None:
            self._layers = {spec.model_index: spec for spec in model.layers}
        self._states = states
        self._images = None if model.images is None else ImageStore(model.images, device)
        self._backend = backend
        self._sampler = sampler
        self._page_table = page_table
        self._staging = staging
        num_rows = page_table.num_rows
        self._last_tokens = torch.zeros(num_rows + 1, dtype=torch.long, device=device)  # one for padding
        self._asked = AskedLogprobs(num_rows, model.vocab_size, staging)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.module.forward).parameters
        # transformers forwards a four-dimensional mask unchanged, and our attention ignores the mask. Without
        # a mask, transformers would search `position_ids` for packed sequences, and wait for the device.
        self._mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=device)
        self._graphs: DecodeGraphs | None = None
        self._clock = clock
        self._defaults = TorchDefaults(users)
        self._processors = processors
        self._read_ids = read_ids

    @property
    def has_own_threads(self) -> bool:
        """Whether nearly all of a step is computed on the components' own threads instead of torch's."""
        return self._model.has_own_threads and self._backend.has_own_threads

    def use_graphs(
        self,
        make_graph: Callable[[], Graph],
        sizes: Sequence[int],
        *,
        capture_all: bool,
        describe: Callable[[Exception], str] = described,
    ) -> None:
        """Run decode steps by replaying captured graphs from now on.

        Args:
            make_graph: factory of graphs.
            sizes: batch sizes to capture (numbers of sequences), ascending.
            capture_all: whether to capture all sizes now; if not, each size is captured when it is first
                needed.
            describe: function that returns a description of the cause of a failed capture, for the log.
        """
        self._graphs = DecodeGraphs(
            sizes,
            make_graph,
            self._forward,
            self._backend,
            self._page_table,
            self._staging,
            self._last_tokens,
            self._model.vocab_size,
            self._begin,
            describe,
        )
        if capture_all:
            self._graphs.capture_all()

    def run(self, step: StepInput, masks: TokenMasks | None = None) -> StepOutput:
        """Compute a step, wait for its output, and return it."""
        return self.sample(self.forward(step), masks).result()

    def forward(self, step: StepInput) -> ForwardPass:
        """Start the forward pass of a step. Steps must be passed in the order in which they were planned."""
        self._defaults.restore()
        self._start_rows(step)
        if self._model.adapters is not None:
            self._model.adapters.begin(step.adapters, step.counts, self._staging)
        changes = self._page_table.change(step.page_places, step.pages)
        if self._graphs is not None and self._graphs.serves(step):
            logits, rows = self._graphs.run(step, changes)
            return ForwardPass(step, step.sampled, logits, None, rows)
        placed = [] if self._images is None else self._images.begin(step.images)
        sampled, positions = step.sampled, step.positions
        to_sample = sampled[0]
        slots = self._page_table.slots(step.token_rows, positions)
        known, sources, places, at, rows, wanted, sampled_rows, *to_write = self._staging.send(
            *(step.tokens, step.sources, step.rotary if len(step.rotary) else positions, slots, step.rows),
            np.concatenate([to_sample, *map(_scored_indices, step.scored)]) if step.scored else to_sample,
            sampled[1],
            *(changes or ()),
            counts_writes=True,
        )
        if to_write:
            self._page_table.write(*to_write)
        batch = forward_batch(step, positions, at, rows, self._page_table)
        shared = (slots, step.rows) if self._staging.is_shared else ()
        watch = InputWatch(batch, self._page_table, shared)
        self._backend.plan(batch)
        states = None
        if self._states is not None:
            self._states.copy(step.states.sources, step.states.targets)
            self._states.begin(step.rows, step.starts, step.kv_lens)
            self._states.note_copies(step.states.slots, step.states.positions)
            states = RowStates(parts_of(batch, step.rows, step.states), self._states)
        are_known = not np.count_nonzero(step.sources != NOT_IN_FLIGHT)
        ids = known if are_known else self._read_ids(known, sources, self._last_tokens)
        self._begin()
        logits = self._forward(ids, places, batch, wanted, states, placed)
        watch.check()
        # float() does not copy float32 tensors. The sampler may change the logits: nothing else reads them.
        if not step.scored:
            return ForwardPass(step, sampled, logits.float(), None, sampled_rows)
        num = len(to_sample)
        return ForwardPass(step, sampled, logits[:num].float(), logits[num:], sampled_rows)

    def sample(self, forward: ForwardPass, masks: TokenMasks | None = None) -> PendingOutput:
        """Start sampling for the step whose forward pass was started last.

        Args:
            forward: result of `forward` for that step.
            masks: masks of allowed tokens, for the constrained sampled tokens; None: no token is constrained.
        """
        prompt_scores = (
            []
            if forward.prompt_logits is None
            else self._asked.prompt_scores(forward.step.scored, forward.prompt_logits)
        )
        _, rows, positions = forward.sampled
        asking = self._asked.before_sampling(forward.logits, rows)
        processing = None
        if self._processors is not None and self._processors.ask(rows):
            processing = Processing(self._processors, self._staging, rows, positions)
        process = None if processing is None else processing.apply
        tokens = self._sampler.sample(forward.logits, rows, positions, masks, process)
        are_finite = self._sampler.are_finite(forward.logits, rows, tokens)
        self._last_tokens.index_copy_(0, forward.rows, tokens)
        if self._clock is not None:
            self._clock.end()
        scores = self._asked.scores(asking, forward.logits, rows, tokens) if asking else []
        if processing is not None:
            processing.append(tokens)
        return PendingOutput(tokens, are_finite, scores, prompt_scores, processing)

    def _start_rows(self, step: StepInput) -> None:
        for start in step.row_starts:
            self._sampler.start(start)
            self._asked.start(start)
            if self._processors is not None:
                self._processors.start(start)
        if step.row_counts:
            self._sampler.recount(step.row_counts)
        if step.row_tokens and self._processors is not None:
            self._processors.keep(step.row_tokens)

    def _begin(self) -> None:
        if self._clock is not None:
            self._clock.begin()

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        batch: ForwardBatch,
        wanted: torch.Tensor | None = None,
        states: RowStates | None = None,
        placed: Sequence[PlacedRows] = (),
    ) -> torch.Tensor:
        """Run the model; return its logits at the indices `wanted`, in the model's dtype: [N, vocab].

        If `wanted` is None, returns all logits.

        Args:
            positions: rotary positions, [T], or on three axes, [3, T].
            placed: rows of images that tokens take.
        """
        kwargs: dict[str, Any] = {}
        if wanted is not None and self._keeps_logits:
            kwargs["logits_to_keep"] = wanted
        embedded: AbstractContextManager[dict[str, torch.Tensor]] = nullcontext({"input_ids": ids[None]})
        if placed:
            assert self._model.images is not None
            embedded = self._model.images.placing(ids, placed)
        with embedded as given:
            output = self._model.module(
                **given,
                position_ids=positions.unsqueeze(-2),
                attention_mask=self._mask,
                use_cache=False,
                llmfw_step=AttentionStep(self._backend, self._layers, batch, states),
                **kwargs,
            )
        logits: torch.Tensor = output.logits[0]
        return logits if wanted is None or self._keeps_logits else logits[wanted]


def forward_batch(
    step: StepInput, positions: Ints, slots: torch.Tensor, rows: torch.Tensor, page_table: PageTable
) -> ForwardBatch:
    """Return the `ForwardBatch` of a step: the input of the model and the attention backend.

    Args:
        step: input of the step.
        positions: position of each token, on the host: [T].
        slots: slot of each token, on the device: [T].
        rows: page table row of each sequence, on the device: [B].
        page_table: page table, whose device copy must be up to date for these rows.
    """
    return ForwardBatch(
        positions=positions,
        slots=slots,
        query_lens=step.counts,
        kv_lens=step.kv_lens,
        rows=rows,
        page_table=page_table.tensor,
        num_single=step.num_single,
        page_size=page_table.page_size,
        ends=step.ends if len(step.ends) else None,
    )


def _scored_indices(scored: ScoredPrompt) -> Ints:
    """Return the indices, among the step's tokens, of the logits that score a prompt's tokens: [P].

    The logits of each token score the token after it.
    """
    return np.arange(scored.first, scored.first + len(scored.token_ids))
