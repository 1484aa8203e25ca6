"""Sequences that begin with the same prompt: their keys are read once, and every bit is as if each were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.testing.attention_case import attend_in_float64, make_layer
from llmfw.plugins.cpu_native.attention import CpuAttention
from llmfw.plugins.cpu_native.cpu import has_bfloat16_pairs
from llmfw.plugins.cpu_native.library import why_not

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

HAS_PAIRS = why_not(torch.bfloat16) is None and has_bfloat16_pairs()


@dataclass(frozen=True)
class Prompt:
    """One of a step's sequences.

    Attributes:
        stored, new: tokens.
        parent: which of the sequences before it has the same first tokens; `common`: how many.
    """

    stored: int
    new: int = 1
    parent: int = 0
    common: int = 0


class Step:
    """Sequences that share pages, with random numbers in all of them.

    Args:
        layer: whose keys and values they are.
        sequences: of the step.
        page_size: what is common is rounded down to whole pages.
        dtype: of all tensors.
        in_pairs: bfloat16 is multiplied so.
    """

    def __init__(
        self,
        layer: LayerSpec,
        sequences: Sequence[Prompt],
        page_size: int = 1,
        dtype: torch.dtype = torch.bfloat16,
        *,
        in_pairs: bool = False,
    ) -> None:
        self.layer, self.sequences, self.page_size = layer, sequences, page_size
        self.tables: list[np.ndarray] = []
        num_pages = 1
        for sequence in sequences:
            common = min(sequence.common, sequence.stored)
            common = min(common, self._stored(sequence.parent)) if self.tables else 0
            head = self.tables[sequence.parent][: common // page_size] if common else np.zeros(0, np.int32)
            own = -(-(sequence.stored + sequence.new) // page_size) - len(head)
            self.tables.append(np.concatenate([head, np.arange(num_pages, num_pages + own)]).astype(np.int32))
            num_pages += own
        generator = torch.Generator().manual_seed(len(sequences))
        self.storage = KVStorage([layer], num_pages, page_size, dtype, torch.device("cpu"))
        for tensor in (*self.storage.keys, *self.storage.values):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        count = sum(sequence.new for sequence in sequences)
        self.query, self.key, self.value = (
            torch.randn(count, heads, size, generator=generator).to(dtype)
            for heads, size in (
                (layer.num_heads, layer.head_dim),
                (layer.num_kv_heads, layer.head_dim),
                (layer.num_kv_heads, layer.v_head_dim),
            )
        )
        self.sinks = torch.randn(layer.num_heads, generator=generator).to(dtype)
        options = CpuAttention.Options(products="pairs" if in_pairs else "float32")
        self.backend = CpuAttention([layer], self.storage, options)

    def run(self, which: Sequence[int] | None = None, *, sinks: bool = False) -> list[torch.Tensor]:
        """Return the outputs of some sequences, of one step: each [new, heads, size]."""
        which = range(len(self.sequences)) if which is None else which
        tokens = torch.cat([self._tokens(i) for i in which])
        self.backend.plan(self._batch(which))
        found = self.backend.forward(
            self.query[tokens],
            self.key[tokens],
            self.value[tokens],
            self.layer,
            self._batch(which),
            self.sinks if sinks else None,
        )
        return list(found.split([self.sequences[i].new for i in which]))

    def num_keys(self) -> int:
        """Return how many keys of a head the step reads that was run last."""
        call = self.backend.call(self.layer)
        num_keys = int(self.backend.library.llmfw_attention_num_keys(call.plan, call.shape))
        return num_keys // self.layer.num_kv_heads

    def expected(self, i: int) -> torch.Tensor:
        """Return a sequence's output in float64, from what is stored after a run."""
        places = self._slots(i, 0)
        keys = self.storage.keys[0].flatten(0, 1)[places]
        values = self.storage.values[0].flatten(0, 1)[places]
        return attend_in_float64(self.query[self._tokens(i)], keys, values, self.layer, None)

    def _stored(self, i: int) -> int:
        return self.sequences[i].stored

    def _tokens(self, i: int) -> torch.Tensor:
        first = sum(sequence.new for sequence in self.sequences[:i])
        return torch.arange(first, first + self.sequences[i].new)

    def _slots(self, i: int, first: int) -> torch.Tensor:
        places = np.arange(first, self.sequences[i].stored + self.sequences[i].new)
        pages = self.tables[i][places // self.page_size].astype(np.int64)
        return torch.from_numpy(pages * self.page_size + places % self.page_size)

    def _batch(self, which: Sequence[int]) -> ForwardBatch:
        table = np.zeros((len(which), max(map(len, self.tables))), dtype=np.int32)
        for row, i in enumerate(which):
            table[row, : len(self.tables[i])] = self.tables[i]
        chosen = [self.sequences[i] for i in which]
        return ForwardBatch(
            positions=np.concatenate([np.arange(s.stored, s.stored + s.new) for s in chosen]),
            slots=torch.cat([self._slots(i, self._stored(i)) for i in which]),
            query_lens=np.array([s.new for s in chosen], dtype=np.int64),
            kv_lens=np.array([s.stored + s.new for s in chosen], dtype=np.int64),
            rows=torch.arange(len(which)),
            page_table=torch.from_numpy(table),
            num_single=sum(s.new == 1 for s in chosen),
            page_size=self.page_size,
        )


def grouped(*lengths: int, common: int) -> list[Prompt]:
    """Return sequences of one new token that have their first tokens in common."""
    return [Prompt(length, 1, 0, common) for length in lengths]


def assert_each_is_as_if_alone(step: Step, *, sinks: bool = False) -> None:
    together = step.run(sinks=sinks)
    for i, found in enumerate(together):
        assert torch.equal(step.run([i], sinks=sinks)[0], found), step.sequences[i]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Draw a step in which any sequence may begin as any earlier one does."""
    heads, key_heads = draw(st.sampled_from([(3, 1), (4, 2), (9, 3), (8, 8), (20, 2)]))
    layer = make_layer(
        num_heads=heads,
        num_kv_heads=key_heads,
        head_dim=16,
        v_head_dim=draw(st.sampled_from([16, 32, 64])),
        sliding_window=draw(st.sampled_from([None, None, 300, 700])),
        softcap=draw(st.sampled_from([None, 3.0])),
    )
    lengths = st.sampled_from([0, 100, 255, 256, 257, 512, 530, 700, 800, 1024])
    sequences = [
        Prompt(
            draw(lengths),
            draw(st.sampled_from([1, 1, 1, 2, 9, 40])),
            draw(st.integers(0, max(0, i - 1))),
            draw(st.sampled_from([0, 256, 500, 512, 770, 1024])),
        )
        for i in range(draw(st.integers(2, 7)))
    ]
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    page_size = draw(st.sampled_from([1, 1, 5, 16, 512]))
    return Step(layer, sequences, page_size, dtype, in_pairs=HAS_PAIRS and draw(st.booleans()))


@settings(max_examples=40, deadline=None)
@given(steps(), st.sampled_from([1, 2, 5]), st.booleans())
def test_shared_pages_do_not_change_results(step: Step, threads: int, sinks: bool) -> None:
    library = step.backend.library
    before = library.llmfw_num_threads()
    try:
        library.llmfw_set_threads(threads)
        assert_each_is_as_if_alone(step, sinks=sinks)
    finally:
        library.llmfw_set_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_equal_float64(dtype: torch.dtype) -> None:
    sequences = [*grouped(600, 513, 800, common=512), Prompt(900, 20, 2, 768), Prompt(40, 3)]
    step = Step(make_layer(), sequences, 1, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for i, found in enumerate(step.run()):
        torch.testing.assert_close(found.double(), step.expected(i), atol=tolerance, rtol=tolerance)


def test_a_common_prompt_is_read_once() -> None:
    step = Step(make_layer(), grouped(*[600] * 8, common=560))
    step.run()
    assert step.num_keys() == 512 + 8 * (601 - 512)


def test_each_shared_prefix_is_read_once() -> None:
    sequences = [
        *grouped(800, 800, common=512),
        *(Prompt(800, 1, 0, 768) for _ in range(2)),
        *(Prompt(300, 1, 4, 256 if i else 0) for i in range(3)),
    ]
    step = Step(make_layer(), sequences)
    step.run()
    assert step.num_keys() == 512 + 256 + 3 * (801 - 768) + (801 - 512) + 256 + 3 * (301 - 256)


def test_windows_share_only_fully_visible_chunks() -> None:
    step = Step(make_layer(sliding_window=300), grouped(800, 1000, 790, common=768))
    step.run()
    alone = sum(len(range((length - 299) // 64 * 64, length + 1)) for length in (800, 1000, 790))
    assert step.num_keys() == alone - 256
    assert_each_is_as_if_alone(step)


def test_rows_beyond_one_read_are_split() -> None:
    layer = make_layer(num_heads=20, num_kv_heads=1)
    step = Step(layer, grouped(*[300] * 10, common=256))
    step.run()
    assert step.num_keys() == 3 * 256 + 10 * 45  # four at a time, and two
    assert_each_is_as_if_alone(step)


def test_different_pages_are_not_shared() -> None:
    """Even if the last page of a chunk is."""
    step = Step(make_layer(), grouped(300, 300, common=256))
    step.tables[1][100] = step.tables[1][299]
    step.run()
    assert step.num_keys() == 2 * 301
    assert_each_is_as_if_alone(step)
