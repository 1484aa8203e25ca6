"""Several attention backends that share the work of each step: for single tokens, prompts and images.

Sequences are independent of each other, so the result equals the result of one backend. Both backends read
and write the same storage. Each backend writes the keys and values of its own tokens, and reads none that the
other backend writes in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.layers import LayerSpec

from .output_check import check_output


class _Part(NamedTuple):
    """One backend's part of a step that has both single tokens and prompts."""

    backend: AttentionBackend
    batch: ForwardBatch
    tokens: slice


class SplitAttention(AttentionBackend):
    """Hands single tokens to one backend, prompts to another, and prompts with images perhaps to a third.

    Args:
        decode: backend for single tokens; the only one in CUDA graphs.
        prefill: backend for sequences of several tokens: prompts, and drafts to verify. Must be built for the
            same layers and the same storage as `decode`. May be `decode` itself.
        ahead: backend that looks ahead, in place of `prefill` for steps with `ForwardBatch.ends`; None:
            `prefill`, if there are such steps.

    Attributes:
        decode, prefill, ahead: the constructor's arguments.
        suspect: the backend that probably caused an error whose cause is otherwise unknown: the backend that
            was called last, or the first backend that has written to the page table.
    """

    looks_ahead = True
    heeds_selection = True

    def __init__(
        self, decode: AttentionBackend, prefill: AttentionBackend, ahead: AttentionBackend | None = None
    ) -> None:
        super().__init__(decode.layers, decode.storage, decode.options)
        self.decode = decode
        self.prefill = prefill
        self.ahead = ahead
        self.suspect = decode
        # If one of the backends computes on torch's threads, torch needs these threads.
        self.has_own_threads = decode.has_own_threads and prefill.has_own_threads
        self._whole: AttentionBackend | None = decode
        self._parts: tuple[_Part, ...] = ()
        self._has_written = False

    @property
    def planned(self) -> AttentionBackend:
        """Backend that computes all of the planned step: one of them, or this object for several."""
        return self if self._whole is None else self._whole

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return None: the code that builds this object asks the classes of the two backends."""
        return None

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return None: the code that builds this object asks the classes of the two backends."""
        return None

    def graph_unsupported(self) -> str | None:
        """Return the answer of the backend for single tokens, because graphs have no other tokens."""
        return self.decode.graph_unsupported()

    def plan(self, batch: ForwardBatch) -> None:
        """Let one backend plan the whole step, or let each backend plan its part."""
        single = batch.num_single
        prefill = self.prefill if batch.ends is None or self.ahead is None else self.ahead
        if single == len(batch.query_lens):
            self._plan_whole(self.decode, batch)
        elif single == 0 or prefill is self.decode:
            self._plan_whole(prefill, batch)
        else:
            self._plan_parts(batch, prefill)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the output of the backend that has planned the step, or the outputs of both, joined."""
        if self._whole is not None:
            return self._whole.forward(query, key, value, layer, batch, sinks)
        outputs = []
        for part in self._parts:
            before = self._begin(part.backend, batch)
            tokens = part.tokens
            own = part.batch
            if batch.selected is not None:
                own = replace(own, selected=batch.selected[tokens])
            output = part.backend.forward(query[tokens], key[tokens], value[tokens], layer, own, sinks)
            check_output(output, (*query[tokens].shape[:2], value.shape[-1]), query.dtype)
            outputs.append(output)
            self._end(part.backend, batch, before)
        return torch.cat(outputs)

    def _plan_whole(self, backend: AttentionBackend, batch: ForwardBatch) -> None:
        self.suspect = self._whole = backend
        self._parts = ()
        backend.plan(batch)

    def _plan_parts(self, batch: ForwardBatch, prefill: AttentionBackend) -> None:
        self._whole, self._has_written = None, False
        single = batch.num_single  # sequences, of one token each
        self._parts = (
            _Part(self.decode, _single_tokens(batch), slice(0, single)),
            _Part(prefill, _prompts(batch), slice(single, len(batch.positions))),
        )
        for part in self._parts:
            before = self._begin(part.backend, batch)
            part.backend.plan(part.batch)
            self._end(part.backend, batch, before)

    def _begin(self, backend: AttentionBackend, batch: ForwardBatch) -> int:
        """Note which backend is called; return the number of writes to the page table so far."""
        if not self._has_written:
            self.suspect = backend
        return _num_writes(batch.page_table)

    def _end(self, backend: AttentionBackend, batch: ForwardBatch, before: int) -> None:
        """Keep the first backend that has written to the page table as the suspect."""
        if not self._has_written and _num_writes(batch.page_table) != before:
            self.suspect, self._has_written = backend, True


def _single_tokens(batch: ForwardBatch) -> ForwardBatch:
    """Return the single tokens of a step, with copies of all inputs except the page table.

    So only the backend for prompts can write to the original inputs. Copying these few numbers is fast.
    """
    some = slice(0, batch.num_single)
    return replace(
        batch,
        positions=batch.positions[some].copy(),
        slots=batch.slots[some].clone(),
        query_lens=batch.query_lens[some].copy(),
        kv_lens=batch.kv_lens[some].copy(),
        rows=batch.rows[some].clone(),
        ends=None,
    )


def _prompts(batch: ForwardBatch) -> ForwardBatch:
    """Return the sequences of a step that have several tokens."""
    first = batch.num_single
    return replace(
        batch,
        positions=batch.positions[first:],
        slots=batch.slots[first:],
        query_lens=batch.query_lens[first:],
        kv_lens=batch.kv_lens[first:],
        rows=batch.rows[first:],
        num_single=0,
        ends=None if batch.ends is None else batch.ends[first:],
    )


def _num_writes(tensor: torch.Tensor) -> int:
    """Return torch's count of writes to a tensor; 0 if torch does not count them."""
    return 0 if tensor.is_inference() else tensor._version
