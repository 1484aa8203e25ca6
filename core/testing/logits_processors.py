"""Conformance tests of the `LogitsProcessor` interface."""

from __future__ import annotations

import copy
import gc
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmfw.core.interfaces.logits_processor import LogitsProcessor, ProcessedRequest
from llmfw.core.step.processors.isolated_processor import check_logits, settle

from .declared import declared
from .example_rows import ALPHABET, ExampleContext, ExampleRow, ExampleRows, Reference

NUM_ROWS = 12
FEW, MANY = 2, 24
"""Numbers of rows whose numbers of operations are compared."""

MORE_OPERATIONS = 4
"""Operations that a call may take more for MANY rows than for FEW."""

NUM_CALLS = 300

NUM_ENDED = 5_000
MAX_KEPT = 1_000
"""Blocks of memory that a processor may keep of NUM_ENDED requests; one that keeps each has more than NUM_ENDED."""

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique", "_unique2", "equal", "item")
"""Operations of torch for which the host waits on a GPU."""


class LogitsProcessorTests:
    """Conformance tests of a logits processor.

    Derive from this class and override the fixtures `processor` and `asking`.
    """

    @pytest.fixture
    def processor(self) -> LogitsProcessor:
        """Return the processor under test, built with an `ExampleContext` and its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture processor")

    @pytest.fixture
    def asking(self, processor: LogitsProcessor) -> Sequence[Mapping[str, Any]]:
        """Return the fields of requests that ask for the processor, at least one."""
        found: Sequence[Mapping[str, Any]] = declared(processor, "asking", ())
        assert found, "override the fixture asking: the fields of requests that ask for the processor"
        return found

    @pytest.fixture
    def silent(self, processor: LogitsProcessor) -> Sequence[Mapping[str, Any]]:
        """Return the fields of requests that do not ask for the processor; empty if each request gets it."""
        found: Sequence[Mapping[str, Any]] = declared(processor, "silent", ({}, {"another_field": 1}))
        return found

    @pytest.fixture
    def reference(self) -> Reference | None:
        """Return a plain function that computes the logits of one row, in float64; None: unknown."""
        return None

    def test_logits_equal_the_reference(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]], reference: Reference | None
    ) -> None:
        """Tests 240 rows, with all fields that ask. Half of the texts use only the first five tokens."""
        if reference is None:
            pytest.skip(
                "the processor does not have the capability reference (a function: row, draw → logits)"
            )
        for seed in range(20):
            rows = example_rows(processor, asking, NUM_ROWS, seed)
            if seed % 2:
                rows = [replace(row, tokens=[token % 5 for token in row.tokens]) for row in rows]
            for row, found in zip(rows, processed_by(processor, rows), strict=True):
                expected = torch.tensor(reference(row, row.draw), dtype=torch.float32)
                where = f"{row.fields}, {row.tokens}"
                message = partial("{}: {}".format, where)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4, msg=message)

    def test_only_requests_that_ask_have_a_state(
        self,
        processor: LogitsProcessor,
        asking: Sequence[Mapping[str, Any]],
        silent: Sequence[Mapping[str, Any]],
    ) -> None:
        for fields in asking:
            assert processor.begin(_row(fields).request) is not None, (
                f"{fields} does not ask for the processor"
            )
        for fields in silent:
            assert processor.begin(_row(fields).request) is None, f"{fields} asks for the processor"

    def test_begin_does_not_change_the_request(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        for fields in asking:
            request = _row(fields).request
            processor.begin(request)
            assert request == _row(fields).request

    def test_the_result_is_logits_of_the_same_rows(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        for num in (1, 2, NUM_ROWS):
            rows = example_rows(processor, asking, num)
            logits = torch.stack([row.logits for row in rows])
            check_logits(processed_by(processor, rows), logits)

    def test_every_row_keeps_an_allowed_token(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """Holds for all logits: large, equal, or with a single token that a grammar allows."""
        for fields in asking:
            rows = [
                replace(row, fields=fields, seed=seed, logits=logits)
                for seed in range(8)
                for row in example_rows(processor, asking, 2)
                for logits in extreme_logits(processor.context.vocab_size)
            ]
            logits = torch.stack([row.logits for row in rows])
            _, are_faulty = settle(logits, processed_by(processor, rows))
            wrong = int(are_faulty.long().argmax())
            assert are_faulty.sum() == 0, f"NaN, infinity or no allowed token with {fields}: {logits[wrong]}"

    def test_any_token_may_be_the_only_allowed_one(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """A grammar may leave a single token, such as a line break."""
        vocab_size = processor.context.vocab_size
        for fields in asking:
            row = _row(fields, vocab_size)
            logits = torch.full((vocab_size, vocab_size), float("-inf")).fill_diagonal_(-2.0)
            rows = [replace(row, logits=each, seed=seed) for seed, each in enumerate(logits)]
            _, are_faulty = settle(logits, processed_by(processor, rows))
            wrong = are_faulty.nonzero().flatten().tolist()
            assert wrong == [], f"tokens that {fields} forbids although no other is allowed"

    def test_short_and_long_rows_are_processed(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        rng = random.Random(0)
        for fields in asking:
            for length in (1, 2, 3, 5000):
                tokens = [rng.randrange(4) for _ in range(length)]
                row = replace(_row(fields, processor.context.vocab_size), tokens=tokens)
                _, are_faulty = settle(row.logits[None], processed_by(processor, [row]))
                assert are_faulty.sum() == 0, f"NaN, infinity or no allowed token after {length} tokens"

    def test_a_row_does_not_depend_on_others(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        rows = example_rows(processor, asking, NUM_ROWS)
        alone = torch.cat([processed_by(processor, [row]) for row in rows])
        for seed in range(4):
            order = random.Random(seed).sample(range(NUM_ROWS), NUM_ROWS - seed)
            found = processed_by(processor, [rows[place] for place in order])
            for place, own in zip(order, found, strict=True):
                assert same(own, alone[place]), f"row {place} has other logits beside {order}"

    def test_the_same_rows_give_the_same_logits(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """Holds after many calls with other rows, too: the processor keeps no data of them."""
        rows = example_rows(processor, asking, 4)
        first = processed_by(processor, rows)
        for seed in range(NUM_CALLS):
            processed_by(processor, example_rows(processor, asking, 2, seed=seed))
        assert same(processed_by(processor, rows), first), f"the logits have changed after {NUM_CALLS} calls"

    def test_a_state_is_not_changed(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """A retracted row gets a new state, which gives the same logits as the old state."""
        rows = example_rows(processor, asking, 4)
        states = [processor.begin(row.request) for row in rows]
        for _ in range(20):
            used = processed_by(processor, rows, states)
        assert same(used, processed_by(processor, rows)), (
            "a state that was used gives other logits than a new one"
        )

    def test_ended_requests_are_forgotten(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """After a state is gone, the processor keeps no data of its request, such as fields."""
        counts = []
        for turn in range(3):
            for i in range(NUM_ENDED):
                num = NUM_ENDED * turn + i
                request = ProcessedRequest(copy.deepcopy(asking[i % len(asking)]), 1000 + num, (1000 + num,))
                processor.begin(request)
            del request
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after {NUM_ENDED:,} further requests"

    def test_randomness_comes_from_the_row_alone(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """The random generators of the process have no influence."""
        rows, found = example_rows(processor, asking, NUM_ROWS), []
        for seed in (1, 2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            found.append(processed_by(processor, rows))
        assert same(*found), "the logits depend on a generator of the process"

    def test_many_rows_take_few_operations(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        """On a GPU, starting an operation takes the same time for one row and for all rows."""
        few, many = (
            len(operations_of(processor, example_rows(processor, asking[:1], num))) for num in (FEW, MANY)
        )
        assert many <= few + MORE_OPERATIONS, f"{MANY} rows take {many} operations, {FEW} rows {few}"

    def test_nothing_waits_for_the_device(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        rows = example_rows(processor, asking, NUM_ROWS)
        waiting = [name for name in operations_of(processor, rows) if name in WAITS]
        assert waiting == [], "operations for which the host waits on a GPU"

    def test_tokens_are_asked_for_only_if_declared(
        self, processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]]
    ) -> None:
        if processor.needs_tokens:
            return
        rows = example_rows(processor, asking, 2)
        part = _TokenlessRows(rows, [processor.begin(row.request) for row in rows])
        with torch.inference_mode():
            processor.process(torch.stack([row.logits for row in rows]), part)
        assert part.num_asked == 0, "process calls rows.tokens(), and needs_tokens is False"


class _TokenlessRows(ExampleRows):
    num_asked = 0

    def tokens(self) -> torch.Tensor:
        self.num_asked += 1
        return super().tokens()


class _Operations(TorchDispatchMode):
    """Records the names of the operations that torch runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "index" and any(each is not None and each.dtype is torch.bool for each in args[1]):
            name = "nonzero"  # of a boolean index
        self.names.append(name)
        return func(*args, **(kwargs or {}))


def _row(fields: Mapping[str, Any], vocab_size: int = 128) -> ExampleRow:
    return ExampleRow(fields, [5, 6, 5], torch.linspace(-3, 6, vocab_size))


def example_rows(
    processor: LogitsProcessor, asking: Sequence[Mapping[str, Any]], num: int, seed: int = 0
) -> list[ExampleRow]:
    """Return rows of different lengths and logits, with texts that repeat themselves."""
    rng = random.Random(f"{seed} {num}")
    draw = torch.Generator().manual_seed(seed)
    vocab_size = processor.context.vocab_size
    found = []
    for i in range(num):
        phrase = [rng.randrange(vocab_size) for _ in range(rng.choice([1, 3, 7]))]
        tokens = [rng.randrange(vocab_size) for _ in range(rng.choice([0, 1, 20, 90]))]
        tokens = (phrase + tokens + phrase * rng.choice([1, 2, 8]))[-150:]
        logits = torch.randn(vocab_size, generator=draw) * rng.choice([0.5, 3.0, 10.0])
        if i % 3 == 2:  # a grammar forbids half of the tokens
            logits[torch.rand(vocab_size, generator=draw) < 0.5] = float("-inf")
            logits[rng.randrange(vocab_size)] = 1.0
        num_output = rng.randrange(len(tokens))
        found.append(ExampleRow(asking[i % len(asking)], tokens, logits, num_output, rng.randrange(1 << 32)))
    return found


def extreme_logits(vocab_size: int) -> list[torch.Tensor]:
    """Return extreme logits that can result from a model, penalties and a grammar."""
    single = torch.full((vocab_size,), float("-inf"))
    single[vocab_size // 3] = -40.0
    pair = single.clone()
    pair[0] = 12.0
    return [
        torch.zeros(vocab_size),
        torch.linspace(-1e4, 1e4, vocab_size),
        torch.full((vocab_size,), -1e30),
        torch.linspace(3e38, -3e38, vocab_size),
        single,
        pair,
    ]


def processed_by(
    processor: LogitsProcessor, rows: Sequence[ExampleRow], states: Sequence[Any] | None = None
) -> torch.Tensor:
    """Return a processor's logits for rows: [R, vocab].

    Args:
        states: states of the rows; None: new ones.
    """
    if states is None:
        states = [processor.begin(row.request) for row in rows]
    logits = torch.stack([row.logits for row in rows])
    with torch.inference_mode():
        found: torch.Tensor = processor.process(logits, ExampleRows(rows, states))
    check_logits(found, logits)
    return found.clone()


def operations_of(processor: LogitsProcessor, rows: Sequence[ExampleRow]) -> list[str]:
    """Return the names of the operations of torch that `process` runs for rows."""
    states = [processor.begin(row.request) for row in rows]
    part, logits = ExampleRows(rows, states), torch.stack([row.logits for row in rows])
    seen = _Operations()
    with torch.inference_mode(), seen:
        processor.process(logits, part)
    return seen.names


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits. All NaN count as equal."""
    return torch.equal(one.nan_to_num(123.0), other.nan_to_num(123.0))


__all__ = ["ALPHABET", "ExampleContext", "ExampleRow", "LogitsProcessorTests", "Reference", "processed_by"]
