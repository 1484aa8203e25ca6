"""Test case for attention backends: one layer with random sequences in pages, and a reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_dtype import as_bytes, encode
from llmfw.core.interfaces.kv_storage import KVStorage

STRAY = 1e4
"""Value of all slots that belong to no sequence. Finite, as in production, but large enough to distort
results if read."""

LARGE = 100.0
"""Keys that take all attention, with products that are finite in every dtype."""


def make_layer(**changes: Any) -> LayerSpec:
    """Return the spec of a small layer with some fields changed."""
    values: dict[str, Any] = {"index": 0, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "scale": 0.3}
    values |= changes
    return LayerSpec(**({"v_head_dim": values["head_dim"]} | values))


def attend_in_float64(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    spec: LayerSpec,
    sinks: torch.Tensor | None,
    ends: npt.NDArray[np.int64] | None = None,
    selected: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention output of the last t tokens of one sequence, computed in float64: [t, H, Dv].

    Args:
        query: queries of these tokens: [t, H, D].
        keys, values: keys and values of all L tokens: [L, Hkv, D], [L, Hkv, Dv].
        spec: the layer.
        sinks: attention sinks: [H]; None: no sinks.
        ends: position after the last token that each of these tokens attends to: [t]; None: no later token.
        selected: positions that each of these tokens attends to, of those up to its own: [t, K]; None: all.
    """
    shared = spec.num_heads // spec.num_kv_heads
    keys, values = (x.double().repeat_interleave(shared, dim=1) for x in (keys, values))
    scores = torch.einsum("thd,lhd->htl", query.double(), keys) * spec.scale
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    places = torch.arange(len(keys))
    own = places[len(keys) - len(query) :]
    distance = own[:, None] - places[None, :]
    after = own + 1 if ends is None else torch.from_numpy(ends)
    hidden = (places >= after[:, None]) | (distance >= (spec.sliding_window or len(keys)))
    if selected is not None:
        hidden |= ~(selected[:, None, :] == places[None, :, None]).any(dim=-1)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, len(query), 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : len(keys)]
    return torch.einsum("htl,lhd->thd", weights, values)


class AttentionCase:
    """A batch of random sequences. Each sequence has new tokens, and may have cached tokens.

    Args:
        spec: the layer.
        lengths: number of cached tokens and of new tokens of each sequence. In the batch, sequences with one
            new token come first.
        page_size: number of tokens in one page.
        dtype: dtype of queries, and of keys and values before they are stored.
        device: device of the tensors.
        seed: seed of all random choices.
        stored_as: dtype of stored keys and values; None: `dtype`.
        scales: scales of stored keys and of stored values.
        rows: row of the page table of each sequence, in the order of the batch; None: random rows.

    Attributes:
        storage: KV storage that holds the cached tokens, and `STRAY` in all other slots.
        batch: forward batch of the step.
        query, key, value: queries, keys and values of the new tokens, packed: [T, heads, …].
        used: whether each slot belongs to a sequence, bool: [slots].
    """

    def __init__(
        self,
        spec: LayerSpec,
        lengths: Sequence[tuple[int, int]],
        page_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        stored_as: torch.dtype | None = None,
        scales: tuple[float, float] = (1.0, 1.0),
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.spec, self.device = spec, torch.device(device)
        self._stored_as, self._scales = stored_as or dtype, scales
        self.lengths = sorted(lengths, key=lambda pair: pair[1] > 1)
        generator = torch.Generator().manual_seed(seed)
        rng = np.random.default_rng(seed)
        counts = [-(-(stored + new) // page_size) for stored, new in self.lengths]
        num_pages = sum(counts) + 3
        pages = np.split(rng.permutation(num_pages).astype(np.int32)[: sum(counts)], np.cumsum(counts)[:-1])
        num_rows = len(self.lengths) + 2
        rows = rng.permutation(num_rows)[: len(self.lengths)] if rows is None else rows
        table = np.zeros((num_rows, max(counts) + 1), dtype=np.int32)
        keys, values = self._stray(num_pages * page_size)
        self.used = torch.zeros(num_pages * page_size, dtype=torch.bool)
        self._sequences, self._places, slots = [], list[npt.NDArray[np.int64]](), []
        for (stored, new), row, mine in zip(self.lengths, rows, pages, strict=True):
            table[row, : len(mine)] = mine
            places = np.arange(stored + new)
            where = mine[places // page_size].astype(np.int64) * page_size + places % page_size
            drawn = self._draw(stored + new, dtype, generator)
            for stored_in, which in ((keys, 0), (values, 1)):
                as_bytes(stored_in)[where[:stored]] = as_bytes(self._encode(drawn[1 + which][:stored], which))
            self.used[where] = True
            self._sequences.append(drawn)
            self._places.append(where)
            slots.append(where[stored:])
        self.storage = KVStorage(
            [spec], num_pages, page_size, dtype, self.device, stored_as, {spec.index: scales}
        )
        self.storage.keys[0].copy_(keys.view(self.storage.keys[0].shape))
        self.storage.values[0].copy_(values.view(self.storage.values[0].shape))
        self.query, self.key, self.value = self._new_tokens()
        self.batch = self._batch(np.concatenate(slots), rows, table, page_size)

    def _stray(self, num_slots: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values for slots that belong to no sequence, [slots, kv_heads, …] each."""
        stray = min(STRAY, torch.finfo(self._stored_as).max)
        shapes = (
            (num_slots, self.spec.num_kv_heads, size) for size in (self.spec.head_dim, self.spec.v_head_dim)
        )
        keys, values = (torch.full(shape, stray, dtype=self._stored_as) for shape in shapes)
        return keys, values

    def _new_tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the queries, keys and values of the new tokens, packed: [T, heads, …] each."""
        new = [
            [part[stored:] for part in drawn]
            for drawn, (stored, _) in zip(self._sequences, self.lengths, strict=True)
        ]
        query, key, value = (torch.cat(parts) for parts in zip(*new, strict=True))
        return query, key, value

    def _batch(
        self,
        slots: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        table: npt.NDArray[np.int32],
        page_size: int,
    ) -> ForwardBatch:
        new_lens = np.array([new for _, new in self.lengths], dtype=np.int64)
        return ForwardBatch(
            positions=np.concatenate([np.arange(stored, stored + new) for stored, new in self.lengths]),
            slots=torch.from_numpy(slots).to(self.device),
            query_lens=new_lens,
            kv_lens=np.array([stored + new for stored, new in self.lengths], dtype=np.int64),
            rows=torch.from_numpy(rows.astype(np.int64)).to(self.device),
            page_table=torch.from_numpy(table).to(self.device),
            num_single=int((new_lens == 1).sum()),
            page_size=page_size,
        )

    def build(self, backend: type[AttentionBackend]) -> AttentionBackend:
        """Return a backend that uses this case's storage."""
        return backend([self.spec], self.storage, backend.Options())

    def run(self, backend: type[AttentionBackend], sinks: torch.Tensor | None = None) -> torch.Tensor:
        """Return a backend's output for the step: [T, H, Dv]."""
        built = self.build(backend)
        built.plan(self.batch)
        return self.forward(built, sinks)

    def forward(self, built: AttentionBackend, sinks: torch.Tensor | None = None) -> torch.Tensor:
        """Return the output of a backend that has already planned the step: [T, H, Dv]."""
        query, key, value = (tensor.to(self.device) for tensor in (self.query, self.key, self.value))
        sinks = None if sinks is None else sinks.to(self.device)
        return built.forward(query, key, value, self.spec, self.batch, sinks).cpu()

    def expected(self, sinks: torch.Tensor | None = None) -> torch.Tensor:
        """Return the correct result of `run`, computed in float64 from the stored data: [T, H, Dv]."""
        counts = [new for _, new in self.lengths]
        ends: list[Any] = [None] * len(counts)
        chosen: list[Any] = [None] * len(counts)
        if self.batch.selected is not None:
            chosen = list(self.batch.selected.cpu().split(counts))
        if self.batch.ends is not None:
            ends = np.split(self.batch.ends, np.cumsum(counts)[:-1])
        sequences = zip(self._sequences, self.lengths, ends, chosen, strict=True)
        return torch.cat(
            [
                attend_in_float64(
                    *(query[stored:], self._stored(keys, 0), self._stored(values, 1), self.spec, sinks),
                    own,
                    chosen,
                )
                for (query, keys, values), (stored, _), own, chosen in sequences
            ]
        )

    def look_ahead(self) -> None:
        """Let the tokens of each sequence with several new ones attend to each other, but for the last two."""
        lengths = np.repeat(self.batch.kv_lens, self.batch.query_lens)
        places = self.batch.positions
        ends = np.where(places < lengths - 2, lengths - 2, places + 1)
        self.batch = replace(self.batch, ends=ends)

    def select(self, num: int) -> None:
        """Let each token attend to itself and a few others, with numbers of later tokens and of none among them."""
        generator = torch.Generator().manual_seed(7)
        places = torch.from_numpy(self.batch.positions)
        drawn = torch.randint(0, int(places.max()) + 9, (len(places), num), generator=generator)
        none = torch.full((len(places), 1), -1)
        selected = torch.cat([drawn, none, places[:, None]], dim=1).to(torch.int32)
        self.batch = replace(self.batch, selected=selected.to(self.device))

    def check(
        self, backend: type[AttentionBackend], tolerance: float, sinks: torch.Tensor | None = None
    ) -> None:
        """Assert that a backend's output equals the reference in float64 up to a tolerance."""
        found, expected = self.run(backend, sinks).double(), self.expected(sinks)
        is_right = torch.isclose(found, expected, atol=tolerance, rtol=tolerance).flatten(1).all(dim=1)
        torch.testing.assert_close(
            found,
            expected,
            atol=tolerance,
            rtol=tolerance,
            msg=lambda text: f"{text}\n\n{self.describe_wrong(is_right)}",
        )

    def describe_wrong(self, is_right: torch.Tensor) -> str:
        """Return text that names the sequences with wrong results.

        Args:
            is_right: whether the result of each new token is right, bool: [T].
        """
        parts = is_right.split([new for _, new in self.lengths])
        wrong = [number for number, part in enumerate(parts) if not part.all()]
        stored, new = self.lengths[wrong[0]]
        return (
            f"The results of {len(wrong)} of {len(parts)} sequences are wrong. The first of them is "
            f"sequence {wrong[0]} of the batch, with {stored} cached tokens and {new} new ones"
        )

    def follow(self, earlier: AttentionCase) -> None:
        """Turn this case into a later step of `earlier`, which has the same numbers of pages and rows.

        From now on, both cases share one storage and one page table, which hold the data of this case.
        """
        for ours, theirs in (
            (self.storage.keys, earlier.storage.keys),
            (self.storage.values, earlier.storage.values),
        ):
            theirs[0].copy_(ours[0])
        earlier.batch.page_table.copy_(self.batch.page_table)
        self.storage = earlier.storage
        self.batch = replace(self.batch, page_table=earlier.batch.page_table)

    def spoil(self, parity: int) -> torch.Tensor:
        """Put NaN into the values, and large numbers into the keys, of free pages and every second sequence.

        NaN in keys would test nothing more, and some kernel interpreters warn about rows of only NaN.

        Args:
            parity: 0 spoils the sequences 0, 2, 4, …; 1 spoils the others.

        Returns:
            Whether each new token belongs to a sequence that is still whole, bool: [T].
        """
        kept = torch.zeros(len(self.storage.keys[0]), dtype=torch.bool, device=self.device)
        for places in self._places[1 - parity :: 2]:
            kept[torch.from_numpy(places // self.batch.page_size)] = True
        is_spoilt = np.arange(len(self.lengths)) % 2 == parity
        whole = torch.from_numpy(~is_spoilt.repeat([new for _, new in self.lengths]))
        self.storage.keys[0][~kept], self.key[~whole] = LARGE, LARGE
        self.storage.values[0][~kept], self.value[~whole] = torch.nan, torch.nan
        return whole

    def codes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values that the storage must hold after a step, as bytes if in fp8."""
        stored = (self.storage.keys[0], self.storage.values[0])
        found = [as_bytes(pages).cpu().clone().flatten(0, 1) for pages in stored]
        for which, new in enumerate((self.key, self.value)):
            found[which][self.batch.slots.cpu()] = as_bytes(self._encode(new, which))
        return found[0], found[1]

    def _encode(self, numbers: torch.Tensor, which: int) -> torch.Tensor:
        """Return keys (`which` is 0) or values (1), encoded as in the storage."""
        if numbers.dtype == self._stored_as:
            return numbers
        return encode(numbers, self._stored_as, self._scales[which])

    def _stored(self, numbers: torch.Tensor, which: int) -> torch.Tensor:
        """Return keys (`which` is 0) or values (1) as read back from the storage, in float64."""
        return self._encode(numbers, which).double() * self._scales[which]

    def _draw(self, count: int, dtype: torch.dtype, generator: torch.Generator) -> list[torch.Tensor]:
        """Return random queries, keys and values for a sequence's tokens."""
        spec = self.spec
        shapes = (
            (spec.num_heads, spec.head_dim),
            (spec.num_kv_heads, spec.head_dim),
            (spec.num_kv_heads, spec.v_head_dim),
        )
        return [torch.randn(count, *shape, generator=generator).to(dtype) for shape in shapes]
