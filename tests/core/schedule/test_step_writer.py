"""The columns of a step are those of its sequences, whether all decode or prompts stand beside them."""

from __future__ import annotations

import numpy as np

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache
from llmfw.core.schedule.plan_builder import PlanBuilder
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.sequence_table import TOKENS

COLUMNS = ("tokens", "sources", "rows", "starts", "counts", "num_sampled")
PROMPT_LEN = 7
NUM = 5


def make_pages() -> SequencePages:
    return SequencePages(KVPool(40, 4), NoPrefixCache(), 8, 40)


def add(
    pages: SequencePages, number: int, num_output: int, *, in_flight: bool = False, **params: float
) -> SequenceState:
    """Return a sequence that has computed all tokens but its last one."""
    sampling = SamplingParams(max_tokens=9, **params)  # type: ignore[arg-type]
    prompt = [10 * number + i for i in range(PROMPT_LEN)]
    seq = SequenceState(
        Request(id=str(number), prompt=prompt, sampling=sampling), number, None, pages.numbers
    )
    pages.attach(seq)
    for i in range(num_output):
        seq.append(100 * number + i)
    seq.length += in_flight
    seq.num_in_flight = int(in_flight)
    seq.num_computed = seq.length - 1
    seq.is_new = 0
    assert pages.extend(seq, seq.length + 1)
    return seq


def decoding(pages: SequencePages) -> np.ndarray:
    """Add sequences with 1, 2 and 3 tokens of output, one with its last in flight, and one with one more."""
    outputs = [1, 2, 3, 2, 4]
    return np.array([add(pages, i, num, in_flight=i == 3).index for i, num in enumerate(outputs)])


def test_a_prompt_does_not_change_decoding_columns() -> None:
    alone, beside = PlanBuilder(pages := make_pages()), PlanBuilder(others := make_pages())
    alone.decode(decoding(pages))
    beside.decode(decoding(others))
    prompt = add(others, 9, 0)
    prompt.num_computed, prompt.is_new = 0, 1
    beside.add_piece(prompt, PROMPT_LEN)
    first, second = alone.launch().step, beside.launch().step
    assert first.tokens.tolist() == [0, 101, 202, 0, 403]
    assert first.sources.tolist() == [-1, -1, -1, first.rows[3], -1]
    for name in COLUMNS:
        assert getattr(second, name)[:NUM].tolist() == getattr(first, name).tolist(), name
    assert second.tokens[NUM:].tolist() == list(range(90, 97))
    assert [start.row for start in second.row_starts] == [prompt.row]
    assert not first.row_starts


def test_a_prompt_s_last_token_is_no_output() -> None:
    pages = make_pages()
    seq = add(pages, 3, 0)
    seq.num_computed = PROMPT_LEN - 1
    builder = PlanBuilder(pages)
    builder.add_piece(seq, 1)
    assert builder.launch().step.tokens.tolist() == [36]


def test_each_page_table_change_is_sent_once() -> None:
    pages = make_pages()
    indices = decoding(pages)
    copy = np.full_like(pages.table, -1)
    sent = 0
    for _ in range(6):
        pages.extend_each(pages.short(indices))
        builder = PlanBuilder(pages)
        builder.decode(indices)
        step = builder.launch().step
        copy.reshape(-1)[step.page_places] = step.pages
        sent += len(step.pages)
        for row, length in zip(step.rows, step.kv_lens, strict=True):
            used = -(-int(length) // 4)
            assert copy[row, :used].tolist() == pages.table[row, :used].tolist()
    assert sent == sum(-(-int(length) // 4) for length in step.kv_lens)


def test_penalties_count_only_unsampled_tokens() -> None:
    pages = make_pages()
    seq = add(pages, 1, 2, frequency_penalty=1.0)
    add(pages, 2, 2)
    seq.num_counted = -1

    def counts() -> list[dict[int, int]]:
        builder = PlanBuilder(pages)
        builder.decode(np.array([seq.index]))
        step = builder.launch().step
        seq.num_in_flight -= 1
        return [dict(zip(e.token_ids.tolist(), e.counts.tolist(), strict=True)) for e in step.row_counts]

    assert counts() == [{100: 1, 101: 1}]
    seq.output.append(100)
    assert counts() == []
    seq.output += [5, 100]  # the last one is forced
    seq.length += 1
    seq.num_computed += 1
    assert counts() == [{5: 1, 100: 3, 101: 1}]


def test_tokens_are_sent_once_and_after_forced_ones() -> None:
    """The executor appends the tokens that it samples itself."""
    pages = make_pages()
    seq = add(pages, 1, 2)
    pages.numbers.tracking[seq.index] = TOKENS
    seq.num_counted = -1

    def sent() -> list[list[int]]:
        builder = PlanBuilder(pages)
        builder.decode(np.array([seq.index]))
        step = builder.launch().step
        seq.num_in_flight -= 1
        assert step.row_counts == ()
        return [each.token_ids.tolist() for each in step.row_tokens]

    known = seq.token_ids.tolist()
    assert sent() == [known]
    seq.output.append(100)
    assert sent() == []
    seq.output += [5, 100]  # the last one is forced
    seq.length += 1
    seq.num_computed += 1
    assert sent() == [[*known, 100, 5, 100]]
