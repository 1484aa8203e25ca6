"""Runs planned steps on the device: tokens in, sampled tokens out.

Launching a step does not wait for its result. The last sampled token of each row stays on the device, so the next
step can be launched before it has reached the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..attention import AttentionBackend
from .batch import ForwardBatch, make_batch
from .hf_attention import AttentionStep
from .models import LoadedModel
from .plan import BatchPlan
from .sampler import Sampler


class LaunchedStep:
    """A step on its way.

    Args:
        tokens: sampled token ids, on the device: [S].
    """

    __slots__ = ("_event", "_tokens")

    def __init__(self, tokens: torch.Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = tokens
        if tokens.is_cuda:
            self._tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            self._tokens.copy_(tokens, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def result(self) -> list[int]:
        """Wait for the step; return the sampled token ids."""
        if self._event is not None:
            self._event.synchronize()
        tokens: list[int] = self._tokens.tolist()
        return tokens


class ModelRunner:
    """The model, its attention backend and its sampler, on one device.

    Args:
        model: loaded and probed.
        backend: built for the model's layers.
        sampler: has a row for each row of the page table.
        page_table: the scheduler's, [rows, most pages]. Read at each launch.
        page_size: tokens in one page.
        device: where all of it is.
    """

    def __init__(
        self,
        model: LoadedModel,
        backend: AttentionBackend,
        sampler: Sampler,
        page_table: npt.NDArray[np.int32],
        page_size: int,
        device: torch.device,
    ) -> None:
        self._model = model
        self._backend = backend
        self._sampler = sampler
        self._page_table = page_table
        self._page_size = page_size
        self._device = device
        self._last_tokens = torch.zeros(len(page_table), dtype=torch.long, device=device)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.module.forward).parameters

    @torch.inference_mode()
    def launch(self, plan: BatchPlan) -> LaunchedStep:
        """Start a step: forward pass and sampling."""
        for planned in plan.sequences:
            if planned.is_new:
                self._sampler.start(planned)
        batch = make_batch(plan, self._page_table, self._page_size, self._device)
        self._backend.plan(batch)
        sampling = [p for p in plan.sequences if p.samples]
        logits = self._forward(self._input_ids(plan), batch, self._rows_to_sample(plan))
        tokens = self._sampler.sample(logits, sampling)
        rows = torch.tensor([p.row for p in sampling], dtype=torch.long, device=self._device)
        self._last_tokens[rows] = tokens
        return LaunchedStep(tokens)

    def _forward(self, input_ids: torch.Tensor, batch: ForwardBatch, wanted: torch.Tensor) -> torch.Tensor:
        """Return float32 logits of the wanted tokens, [S, vocab]."""
        kwargs: dict[str, Any] = {"logits_to_keep": wanted} if self._keeps_logits else {}
        output = self._model.module(
            input_ids=input_ids[None],
            position_ids=torch.from_numpy(batch.positions).to(self._device)[None],
            use_cache=False,
            llmfw_step=AttentionStep(self._backend, self._model.layers, batch),
            **kwargs,
        )
        logits: torch.Tensor = output.logits[0]
        # float() of a float32 tensor is the tensor itself, which nobody else reads: the sampler may change it.
        return (logits if self._keeps_logits else logits[wanted]).float()

    def _input_ids(self, plan: BatchPlan) -> torch.Tensor:
        """Return the tokens of a plan, [T]. One in flight is the last that its row has sampled."""
        known = np.zeros(plan.num_tokens, dtype=np.int64)
        places: list[int] = []
        rows: list[int] = []
        first = 0
        for p in plan.sequences:
            ids = p.seq.token_ids[p.start : p.end]
            known[first : first + len(ids)] = ids
            first += p.count
            if len(ids) < p.count:
                places.append(first - 1)
                rows.append(p.row)
        input_ids = torch.from_numpy(known).to(self._device)
        if places:
            input_ids[torch.tensor(places, device=self._device)] = self._last_tokens[
                _index(rows, self._device)
            ]
        return input_ids

    def _rows_to_sample(self, plan: BatchPlan) -> torch.Tensor:
        """Return the places, among the packed tokens, of those that a token is sampled after: [S]."""
        last = np.cumsum([p.count for p in plan.sequences]) - 1
        return torch.from_numpy(last[[p.samples for p in plan.sequences]]).to(self._device)


def _index(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)
