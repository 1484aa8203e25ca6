"""Runs planned steps on the device: tokens in, sampled tokens out.

A step has two halves, the forward pass and sampling, so that what is to be known for the second can be found out
during the first. Neither waits for a result. The last sampled token of each row stays on the device, so the next
step can be launched before it has reached the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.model.hf_attention import AttentionStep
from llmfw.core.model.models import LoadedModel
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence, StepResult
from llmfw.core.schedule.sequence import SequenceState

from .device.page_table import PageTable
from .device.staging import Staging
from .device.step_clock import StepClock
from .graphs import DecodeGraphs, Graph
from .logits.token_mask import TokenMasks
from .numbers import NOT_IN_FLIGHT, Ints, StepNumbers, input_ids
from .sampling.logprobs import RowLogprobs, first_of, num_looked_for
from .sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """The first half of a step.

    Attributes:
        plan: what runs.
        logits: of the tokens after which one is sampled, float32: [S, vocab].
        prompt_places: of prompt tokens whose successors' log probabilities are asked for, by sequence: P in all.
        prompt_logits: of these, in the model's dtype: [P, vocab]; None without any.
        rows: those of the page table that the sampled tokens belong to, on the device: [S].
    """

    plan: BatchPlan
    logits: torch.Tensor
    prompt_places: Sequence[tuple[SequenceState, range]]
    prompt_logits: torch.Tensor | None
    rows: torch.Tensor

    @property
    def sampling(self) -> list[PlannedSequence]:
        """The sequences that `logits` belong to."""
        return self.plan.sampled


class LaunchedStep:
    """A step on its way.

    Args:
        tokens: sampled token ids, on the device: [S].
        logprobs: of sampled tokens; of each row the id of its request, and how many of the most likely tokens it wants.
        prompt_logprobs: of prompt tokens, each with the id of the request.
    """

    __slots__ = ("_event", "_logprobs", "_prompt_logprobs", "_tokens")

    def __init__(
        self,
        tokens: torch.Tensor,
        logprobs: Sequence[tuple[list[tuple[str, int]], RowLogprobs]] = (),
        prompt_logprobs: Sequence[tuple[str, RowLogprobs]] = (),
    ) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = _start_copy(tokens)
        self._logprobs = [(wanted, _start_copies(rows)) for wanted, rows in logprobs]
        self._prompt_logprobs = [(request_id, _start_copies(rows)) for request_id, rows in prompt_logprobs]
        if tokens.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def result(self) -> StepResult:
        """Wait for the step; return what it gave."""
        if self._event is not None:
            self._event.synchronize()
        logprobs: dict[str, list[TokenLogprob]] = {}
        for wanted, rows in self._logprobs:
            for (request_id, k), record in zip(wanted, rows.records(), strict=True):
                logprobs.setdefault(request_id, []).append(first_of(record, k))
        return StepResult(
            self._tokens.tolist(),
            logprobs,
            {request_id: rows.records() for request_id, rows in self._prompt_logprobs},
        )


class ModelRunner:
    """The model, its attention backend and its sampler, on one device. Whoever runs steps is in torch's inference mode.

    Args:
        model: loaded and probed.
        backend: built for the model's layers.
        sampler: has a row for each row of the page table.
        page_table: the scheduler's. Read at each launch.
        staging: brings numbers to the device.
        device: where all of it is.
        clock: measures the steps.
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
    ) -> None:
        self._model = model
        self._backend = backend
        self._sampler = sampler
        self._page_table = page_table
        self._staging = staging
        num_rows = len(page_table.host) + 1  # the last one is padding's
        self._last_tokens = torch.zeros(num_rows, dtype=torch.long, device=device)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.module.forward).parameters
        # transformers returns a mask of four dimensions as it is, for our attention to overlook. Without one it would
        # look into `position_ids` for packed sequences, and so wait for the device.
        self._mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=device)
        self._graphs: DecodeGraphs | None = None
        self._clock = clock

    @property
    def has_own_threads(self) -> bool:
        """Whether nearly all of a step is computed on threads that are not torch's."""
        return self._model.has_own_threads and self._backend.has_own_threads

    def use_graphs(self, make_graph: Callable[[], Graph], sizes: Sequence[int], *, capture_all: bool) -> None:
        """Have steps of single tokens captured and replayed.

        Args:
            make_graph: makes what captures a step.
            sizes: numbers of sequences to capture, ascending.
            capture_all: now; else each when it is first met.
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
        )
        if capture_all:
            self._graphs.capture_all()

    def forward(self, plan: BatchPlan) -> ForwardStep:
        """Start the forward pass of a plan."""
        for planned in plan.prefills:
            if planned.is_new:
                self._sampler.start(planned)
        numbers = StepNumbers.of(plan, self._page_table)
        prompt_places = _prompt_places(plan)
        if self._graphs is not None and not prompt_places and self._graphs.serves(plan):
            logits, rows = self._graphs.run(numbers)
            return ForwardStep(plan, logits, [], None, rows)
        to_sample = _places_to_sample(plan)
        changes = self._page_table.take_changes(numbers.rows, numbers.kv_lens)
        known, sources, positions, slots, rows, wanted, sampled_rows, *to_write = self._staging.send(
            *(numbers.known, numbers.sources, numbers.positions, numbers.slots, numbers.rows),
            np.concatenate([to_sample, _places_in_step(plan, prompt_places)]) if prompt_places else to_sample,
            np.repeat(plan.rows, plan.num_sampled) if plan.drafts else plan.rows[plan.samples],
            *(changes if len(changes[0]) else ()),
        )
        if to_write:
            self._page_table.write(*to_write)
        batch = numbers.batch(slots, rows, self._page_table)
        self._backend.plan(batch)
        are_known = not np.count_nonzero(numbers.sources != NOT_IN_FLIGHT)
        ids = known if are_known else input_ids(known, sources, self._last_tokens)
        self._begin()
        logits = self._forward(ids, positions, batch, wanted)
        # float() of a float32 tensor is the tensor itself, of which nobody else reads these rows: the sampler may
        # change them.
        if not prompt_places:
            return ForwardStep(plan, logits.float(), [], None, sampled_rows)
        num = len(to_sample)
        return ForwardStep(
            plan, logits[:num].float(), list(prompt_places.values()), logits[num:], sampled_rows
        )

    def sample(self, step: ForwardStep, masks: TokenMasks | None = None) -> LaunchedStep:
        """Start the sampling of a step whose forward pass was started last.

        Args:
            masks: which tokens are allowed, for the sequences where not all are.
        """
        sampling = step.sampling
        prompt_logprobs = self._prompt_logprobs(step) if step.prompt_places else []
        asking = _asking(sampling, self._model.vocab_size)
        places = self._staging.send(*(np.array(places, dtype=np.int64) for places in asking.values()))
        raw = [step.logits[chosen] for chosen in places]
        tokens = self._sampler.sample(step.logits, sampling, masks)
        self._last_tokens.index_copy_(0, step.rows, tokens)
        if self._clock is not None:
            self._clock.end()
        logprobs = []
        for (k, asked), chosen, logits in zip(asking.items(), places, raw, strict=True):
            rows = RowLogprobs.of(logits, tokens[chosen], k)
            logprobs.append(([_wanted(sampling[place]) for place in asked], rows))
        return LaunchedStep(tokens, logprobs, prompt_logprobs)

    def _begin(self) -> None:
        if self._clock is not None:
            self._clock.begin()

    def _prompt_logprobs(self, step: ForwardStep) -> list[tuple[str, RowLogprobs]]:
        following = [
            seq.token_ids[places.start + 1 : places.stop + 1].astype(np.int64)
            for seq, places in step.prompt_places
        ]
        found = []
        assert step.prompt_logits is not None
        pieces = step.prompt_logits.split([len(places) for _, places in step.prompt_places])
        for (seq, _), logits, ids in zip(
            step.prompt_places, pieces, self._staging.send(*following), strict=True
        ):
            k = seq.request.prompt_logprobs
            assert k is not None
            found.append((seq.id, RowLogprobs.of(logits, ids, k)))
        return found

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        batch: ForwardBatch,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the logits of the wanted tokens, or of all, in the model's dtype: [wanted, vocab]."""
        kwargs: dict[str, Any] = {}
        if wanted is not None and self._keeps_logits:
            kwargs["logits_to_keep"] = wanted
        output = self._model.module(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=self._mask,
            use_cache=False,
            llmfw_step=AttentionStep(self._backend, self._model.layers, batch),
            **kwargs,
        )
        logits: torch.Tensor = output.logits[0]
        return logits if wanted is None or self._keeps_logits else logits[wanted]


def _prompt_places(plan: BatchPlan) -> dict[int, tuple[SequenceState, range]]:
    """Return which prompt tokens' logits are wanted for their successors' log probabilities, by index in the plan."""
    if all(seq.prompt_logprobs is None for seq in plan.sequences):
        return {}
    wanted = {
        i: (p.seq, p.seq.prompt_logprobs.wanted(p.start, p.end))
        for i, p in enumerate(plan.parts)
        if p.seq.prompt_logprobs is not None
    }
    return {i: (seq, places) for i, (seq, places) in wanted.items() if places}


def _places_to_sample(plan: BatchPlan) -> Ints:
    """Return the places, among the packed tokens, of those that a token is sampled after: [S]."""
    if plan.is_decode:
        return np.arange(plan.num_single)
    ends: Ints = np.cumsum(plan.counts)
    if not plan.drafts:
        return (ends - 1)[plan.samples]
    num = plan.num_sampled
    return np.arange(int(num.sum())) + np.repeat(ends - np.cumsum(num), num)


def _places_in_step(plan: BatchPlan, wanted: dict[int, tuple[SequenceState, range]]) -> Ints:
    """Return the places, among the packed tokens, of wanted prompt tokens: [P]."""
    first = np.cumsum(plan.counts) - (plan.starts + plan.counts)  # of position 0
    places = [first[i] + place for i, (_, positions) in wanted.items() for place in positions]
    return np.array(places, dtype=np.int64)


def _asking(sampling: Sequence[PlannedSequence], vocab_size: int) -> dict[int, list[int]]:
    """Return which of the sequences ask for log probabilities, by how many of the most likely tokens are looked for.

    There are few such numbers, so that it takes as many operations whatever is asked for.
    """
    asking: dict[int, list[int]] = {}
    for place, p in enumerate(sampling):
        if p.seq.request.logprobs is not None:
            asking.setdefault(num_looked_for(p.seq.request.logprobs, vocab_size), []).append(place)
    return asking


def _wanted(planned: PlannedSequence) -> tuple[str, int]:
    """Return the id of a request that asks for log probabilities, and of how many of the most likely tokens."""
    assert planned.seq.request.logprobs is not None
    return planned.seq.id, planned.seq.request.logprobs


def _start_copies(rows: RowLogprobs) -> RowLogprobs:
    return RowLogprobs(*map(_start_copy, rows.tensors()))


def _start_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return where a tensor will be on the host."""
    if not tensor.is_cuda:
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)
