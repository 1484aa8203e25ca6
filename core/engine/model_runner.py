"""Runs planned steps on the device: tokens in, sampled tokens out.

A step has two halves, the forward pass and sampling, so that what is to be known for the second can be found out
during the first. Neither waits for a result. The last sampled token of each row stays on the device, so the next
step can be launched before it has reached the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..attention import AttentionBackend
from ..scheduling.plan import BatchPlan, PlannedSequence, StepResult
from ..scheduling.sequence import SequenceState
from .batch import ForwardBatch, make_batch
from .hf_attention import AttentionStep
from .logprobs import RowLogprobs
from .models import LoadedModel
from .page_table import PageTable
from .sampler import Sampler
from .token_mask import TokenMasks


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """The first half of a step.

    Attributes:
        plan: what runs.
        logits: of the tokens after which one is sampled, float32: [S, vocab].
        prompt_places: of prompt tokens whose successors' log probabilities are asked for, by sequence: P in all.
        prompt_logits: of these, in the model's dtype: [P, vocab].
    """

    plan: BatchPlan
    logits: torch.Tensor
    prompt_places: Sequence[tuple[SequenceState, range]]
    prompt_logits: torch.Tensor

    @property
    def sampling(self) -> list[PlannedSequence]:
        """The sequences that `logits` belong to."""
        return [p for p in self.plan.parts if p.samples]


class LaunchedStep:
    """A step on its way.

    Args:
        tokens: sampled token ids, on the device: [S].
        logprobs: of sampled tokens, with the ids of the requests that its rows belong to.
        prompt_logprobs: of prompt tokens, each with the id of the request.
    """

    __slots__ = ("_event", "_logprobs", "_prompt_logprobs", "_tokens")

    def __init__(
        self,
        tokens: torch.Tensor,
        logprobs: Sequence[tuple[list[str], RowLogprobs]] = (),
        prompt_logprobs: Sequence[tuple[str, RowLogprobs]] = (),
    ) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = _start_copy(tokens)
        self._logprobs = [(ids, _start_copies(rows)) for ids, rows in logprobs]
        self._prompt_logprobs = [(request_id, _start_copies(rows)) for request_id, rows in prompt_logprobs]
        if tokens.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def result(self) -> StepResult:
        """Wait for the step; return what it gave."""
        if self._event is not None:
            self._event.synchronize()
        pairs = [zip(ids, rows.records(), strict=True) for ids, rows in self._logprobs]
        return StepResult(
            self._tokens.tolist(),
            {request_id: record for pair in pairs for request_id, record in pair},
            {request_id: rows.records() for request_id, rows in self._prompt_logprobs},
        )


class ModelRunner:
    """The model, its attention backend and its sampler, on one device.

    Args:
        model: loaded and probed.
        backend: built for the model's layers.
        sampler: has a row for each row of the page table.
        page_table: the scheduler's. Read at each launch.
        page_size: tokens in one page.
        device: where all of it is.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackend,
        sampler: Sampler,
        page_table: PageTable,
        page_size: int,
        device: torch.device,
    ) -> None:
        self._model = model
        self._backend = backend
        self._sampler = sampler
        self._page_table = page_table
        self._page_size = page_size
        self._device = device
        self._last_tokens = torch.zeros(len(page_table.host), dtype=torch.long, device=device)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.module.forward).parameters

    @torch.inference_mode()
    def forward(self, plan: BatchPlan) -> ForwardStep:
        """Start the forward pass of a plan."""
        for planned in plan.prefills:
            if planned.is_new:
                self._sampler.start(planned)
        batch = make_batch(plan, self._page_table, self._page_size, self._device)
        self._backend.plan(batch)
        prompt_places = _prompt_places(plan)
        to_sample = _places_to_sample(plan)
        wanted = torch.cat([to_sample, _places_in_step(plan, prompt_places)]).to(self._device)
        logits = self._forward(self._input_ids(plan), batch, wanted)
        # float() of a float32 tensor is the tensor itself, of which nobody else reads these rows: the sampler may
        # change them.
        num = len(to_sample)
        return ForwardStep(plan, logits[:num].float(), list(prompt_places.values()), logits[num:])

    @torch.inference_mode()
    def sample(self, step: ForwardStep, masks: TokenMasks | None = None) -> LaunchedStep:
        """Start the sampling of a step whose forward pass was started last.

        Args:
            masks: which tokens are allowed, for the sequences where not all are.
        """
        sampling = step.sampling
        prompt_logprobs = self._prompt_logprobs(step)
        asking = _asking(sampling)
        raw = {k: step.logits[_index(places, self._device)] for k, places in asking.items()}
        tokens = self._sampler.sample(step.logits, sampling, masks)
        self._last_tokens[_index([p.row for p in sampling], self._device)] = tokens
        logprobs = []
        for k, places in asking.items():
            rows = RowLogprobs.of(raw[k], tokens[_index(places, self._device)], k)
            logprobs.append(([sampling[place].seq.id for place in places], rows))
        return LaunchedStep(tokens, logprobs, prompt_logprobs)

    def _prompt_logprobs(self, step: ForwardStep) -> list[tuple[str, RowLogprobs]]:
        found = []
        pieces = step.prompt_logits.split([len(places) for _, places in step.prompt_places])
        for (seq, places), logits in zip(step.prompt_places, pieces, strict=True):
            following = seq.token_ids[places.start + 1 : places.stop + 1].astype(np.int64)
            k = seq.request.prompt_logprobs
            assert k is not None
            found.append((seq.id, RowLogprobs.of(logits, torch.from_numpy(following).to(self._device), k)))
        return found

    def _forward(self, input_ids: torch.Tensor, batch: ForwardBatch, wanted: torch.Tensor) -> torch.Tensor:
        """Return the logits of the wanted tokens, in the model's dtype: [wanted, vocab]."""
        kwargs: dict[str, Any] = {"logits_to_keep": wanted} if self._keeps_logits else {}
        output = self._model.module(
            input_ids=input_ids[None],
            position_ids=torch.from_numpy(batch.positions).to(self._device)[None],
            use_cache=False,
            llmfw_step=AttentionStep(self._backend, self._model.layers, batch),
            **kwargs,
        )
        logits: torch.Tensor = output.logits[0]
        return logits if self._keeps_logits else logits[wanted]

    def _input_ids(self, plan: BatchPlan) -> torch.Tensor:
        """Return the tokens of a plan, [T]. One in flight is the last that its row has sampled."""
        known = np.zeros(plan.num_tokens, dtype=np.int64)
        places: list[int] = []
        rows: list[int] = []
        first = 0
        for seq, row, start, count in zip(
            plan.sequences, plan.rows.tolist(), plan.starts.tolist(), plan.counts.tolist(), strict=True
        ):
            ids = seq.tokens(start, start + count)
            known[first : first + len(ids)] = ids
            first += count
            if len(ids) < count:
                places.append(first - 1)
                rows.append(row)
        input_ids = torch.from_numpy(known).to(self._device)
        if places:
            input_ids[torch.tensor(places, device=self._device)] = self._last_tokens[
                _index(rows, self._device)
            ]
        return input_ids


def _prompt_places(plan: BatchPlan) -> dict[int, tuple[SequenceState, range]]:
    """Return which prompt tokens' logits are wanted for their successors' log probabilities, by index in the plan."""
    wanted = {
        i: (p.seq, p.seq.prompt_logprobs.wanted(p.start, p.end))
        for i, p in enumerate(plan.parts)
        if p.seq.prompt_logprobs is not None
    }
    return {i: (seq, places) for i, (seq, places) in wanted.items() if places}


def _places_to_sample(plan: BatchPlan) -> torch.Tensor:
    """Return the places, among the packed tokens, of those that a token is sampled after: [S]."""
    last = np.cumsum(plan.counts) - 1
    return torch.from_numpy(last[plan.samples])


def _places_in_step(plan: BatchPlan, wanted: dict[int, tuple[SequenceState, range]]) -> torch.Tensor:
    """Return the places, among the packed tokens, of wanted prompt tokens: [P]."""
    first = np.cumsum(plan.counts) - (plan.starts + plan.counts)  # of position 0
    places = [first[i] + place for i, (_, positions) in wanted.items() for place in positions]
    return torch.tensor(places, dtype=torch.long)


def _asking(sampling: Sequence[PlannedSequence]) -> dict[int, list[int]]:
    """Return which of the sequences ask for log probabilities, by how many of the most likely tokens they want."""
    asking: dict[int, list[int]] = {}
    for place, p in enumerate(sampling):
        if p.seq.request.logprobs is not None:
            asking.setdefault(p.seq.request.logprobs, []).append(place)
    return asking


def _start_copies(rows: RowLogprobs) -> RowLogprobs:
    return RowLogprobs(*map(_start_copy, rows.tensors()))


def _start_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return where a tensor will be on the host."""
    if not tensor.is_cuda:
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


def _index(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)
