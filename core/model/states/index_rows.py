"""Splits the packed row of a step for modules that select tokens, and keeps their keys in pages.

A token's index key is stored at the token's slot, next to its key and value, so the prefix cache, retraction and
chunks of prompts need nothing more. Sequences that decode are computed together, [N, 1, hidden], with their keys
padded to the longest sequence. Prompts are computed one by one, in blocks of tokens, to keep scores small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.interfaces.layers import LayerSpec

from .index_mixer import IndexCall, seen_from
from .module_mixer import Part

MAX_PAIRS = 1 << 20
"""Maximum number of pairs of new tokens and keys that are scored at once. With 64 heads, DeepSeek V3.2's, their scores
take 256 MB in float32."""


@dataclass(frozen=True, slots=True)
class _Block:
    """New tokens that are scored at once: a part of the row, and the slots of its sequences' tokens.

    Attributes:
        part: the new tokens.
        slots: slot of each token so far: [N, L]; the first slot in place of tokens beyond a sequence's end.
        start: position of the first new token, for a single sequence; -1: each sequence has one new token, its last.
        lengths: number of tokens of each sequence: [N].
    """

    part: Part
    slots: torch.Tensor
    start: int
    lengths: torch.Tensor

    def seen(self) -> torch.Tensor:
        """Return whether each new token may select each position: [N, T, L]."""
        if self.start >= 0:
            return seen_from(self.start, self.part.num_tokens, 1, self.slots.device)
        places = torch.arange(self.slots.shape[1], device=self.slots.device)
        return (places < self.lengths[:, None])[:, None]


class IndexRows:
    """Runs the calls of modules that select tokens, for one step.

    Args:
        batch: tensors of the step.
        storage: storage of keys, values and index keys.
    """

    def __init__(self, batch: ForwardBatch, storage: KVStorage) -> None:
        self._batch = batch
        self._storage = storage
        self._blocks: dict[bool, list[_Block]] = {}

    def select(self, call: IndexCall, layer: LayerSpec) -> torch.Tensor:
        """Return the positions that each token selects, [1, total, K]; store the tokens' index keys."""
        alone = call.mixer.takes_all_tables  # the last tables must be those of the new tokens, not padding
        if alone not in self._blocks:
            self._blocks[alone] = list(_blocks(self._batch, alone))
        return call.join([(block.part, self._select(call, block, layer)) for block in self._blocks[alone]])

    def _select(self, call: IndexCall, block: _Block, layer: LayerSpec) -> torch.Tensor:
        new_slots = self._batch.slots[block.part.tokens]

        def keep(new: torch.Tensor, first: int) -> torch.Tensor:
            num = new.shape[-1]
            self._storage.write_index_keys(layer.index, new_slots, new.reshape(-1, num), first)
            return self._storage.read_index_keys(layer.index, block.slots, first, num)

        return call.select(block.part, block.seen(), keep)


def _blocks(batch: ForwardBatch, alone: bool) -> Iterator[_Block]:
    """Yield blocks that have each token of a step once, the tokens of a sequence in order.

    Args:
        alone: whether each block has tokens of one sequence only, and no padding.
    """
    first = 0
    while first < batch.num_single:
        longest, end = 0, first
        while end < batch.num_single:
            longest = max(longest, int(batch.kv_lens[end]))
            if end > first and (alone or longest * (end + 1 - first) > MAX_PAIRS):
                break
            end += 1
        yield _singles(batch, first, end)
        first = end
    for i in range(batch.num_single, len(batch.query_lens)):
        count, length = int(batch.query_lens[i]), int(batch.kv_lens[i])
        slots = _slots(batch, slice(i, i + 1), length)
        size = max(1, MAX_PAIRS // length)
        for offset in range(0, count, size):
            num = min(size, count - offset)
            start = length - count + offset
            part = Part(slice(first + offset, first + offset + num), 1, num)
            yield _Block(part, slots[:, : start + num], start, batch.rows.new_empty(0))
        first += count


def _singles(batch: ForwardBatch, first: int, end: int) -> _Block:
    """Return the block of sequences that have one new token each."""
    lengths = torch.from_numpy(batch.kv_lens[first:end]).to(batch.device)
    slots = _slots(batch, slice(first, end), int(batch.kv_lens[first:end].max()))
    # Beyond a sequence's end, its row may name pages of other sequences, which may hold NaN.
    is_own = torch.arange(slots.shape[1], device=batch.device) < lengths[:, None]
    return _Block(
        Part(slice(first, end), end - first, 1), torch.where(is_own, slots, slots[:, :1]), -1, lengths
    )


def _slots(batch: ForwardBatch, sequences: slice, length: int) -> torch.Tensor:
    """Return the slots of the first `length` tokens of each sequence: [N, length]."""
    size = batch.page_size
    pages = batch.page_table[:, : -(-length // size)].index_select(0, batch.rows[sequences]).long()
    offsets = torch.arange(size, device=batch.device)
    return (pages[:, :, None] * size + offsets).flatten(1)[:, :length]
