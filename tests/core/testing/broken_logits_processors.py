"""Logits processors that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from llmfw.core import LogitsProcessor, ProcessedRequest, ProcessedRows
from llmfw.core.testing import LogitsProcessorTests
from llmfw.core.testing.logits_processors import ALPHABET, ExampleContext, ExampleRow, Reference


class Broken(LogitsProcessor):
    """Adds a number to the logit of the last token, and has room for what a broken processor keeps."""

    needs_tokens = True
    conformance: ClassVar = {"asking": [{"push": 2.0}, {"push": -1.0}], "silent": [{}]}

    def __init__(self, context: Any, options: Any) -> None:
        super().__init__(context, options)
        self.calls = itertools.count()
        self.seen = torch.zeros(context.vocab_size)
        self.requests: list[ProcessedRequest] = []

    def begin(self, request: ProcessedRequest) -> Any:
        return request.fields.get("push")

    def last(self, rows: ProcessedRows) -> torch.Tensor:
        (ends,) = rows.send(rows.positions)
        return rows.tokens().gather(1, ends[:, None] - 1)

    def amounts(self, rows: ProcessedRows) -> torch.Tensor:
        (sent,) = rows.send(np.array(rows.states, dtype=np.float32))
        return sent[:, None]

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return logits.scatter_add_(1, self.last(rows), self.amounts(rows))


class AsksForEverything(Broken):
    def begin(self, request: ProcessedRequest) -> Any:
        return request.fields.get("push", 0.0)


class NeverAsks(Broken):
    def begin(self, request: ProcessedRequest) -> Any:
        return None


class PopsItsField(Broken):
    def begin(self, request: ProcessedRequest) -> Any:
        return dict.pop(request.fields, "push", None)  # type: ignore[arg-type]


class ReturnsDoubles(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows).double()


class SqueezesOneRow(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows).squeeze()


class ReturnsNothing(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> Any:
        super().process(logits, rows)


class KeepsOnlySureTokens(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return logits.masked_fill(torch.softmax(logits, -1) < 0.02, float("-inf"))


class Standardizes(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return (logits - logits.mean(-1, keepdim=True)) / logits.std(-1, keepdim=True)


class ForbidsLineBreaks(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        logits[:, ALPHABET.index("\n")] = float("-inf")
        return super().process(logits, rows)


class CollectsRequests(Broken):
    def begin(self, request: ProcessedRequest) -> Any:
        self.requests.append(request)
        return super().begin(request)


class NeedsThreeTokens(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        (ends,) = rows.send(rows.positions)
        return logits.scatter_add_(1, rows.tokens().gather(1, ends[:, None] - 3), self.amounts(rows))


class CentersOverTheBatch(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows) - logits.amax()


class TakesPaddingForTokens(Broken):
    def last(self, rows: ProcessedRows) -> torch.Tensor:
        return rows.tokens()[:, -1:].clamp_min(0)


class ChangesAfterManyCalls(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows) * (2 if next(self.calls) > 200 else 1)


class RemembersTokens(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        self.seen[self.last(rows)[:, 0]] = 1
        return super().process(logits, rows) - self.seen


class CountsInItsState(Broken):
    def begin(self, request: ProcessedRequest) -> Any:
        return {"push": request.fields["push"], "calls": 0} if "push" in request.fields else None

    def amounts(self, rows: ProcessedRows) -> torch.Tensor:
        for state in rows.states:
            state["calls"] += 1
        (sent,) = rows.send(
            np.array([each["push"] * each["calls"] for each in rows.states], dtype=np.float32)
        )
        return sent[:, None]


class DrawsFromTorch(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows) + torch.rand(len(logits), 1)


class DrawsFromPython(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows) + random.random()


class LoopsOverRows(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        tokens = rows.tokens()
        for row, (amount, end) in enumerate(zip(rows.states, rows.positions, strict=True)):
            logits[row].index_add_(0, tokens[row, end - 1 : end], torch.tensor([amount]))
        return logits


class ReadsANumber(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        return super().process(logits, rows) + (logits.amax().item() > 1e9)


class IndexesByMask(Broken):
    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        logits[logits > 5] = logits[logits > 5] * 0.5
        return super().process(logits, rows)


class AsksForUndeclaredTokens(Broken):
    needs_tokens = False


class PushesTwice(Broken):
    """Pushes the last token by twice the amount that the request asks for."""

    def amounts(self, rows: ProcessedRows) -> torch.Tensor:
        return 2 * super().amounts(rows)


def pushed(row: ExampleRow, draw: Callable[..., float]) -> Sequence[float]:
    logits = row.logits.tolist()
    logits[row.tokens[-1]] += row.fields["push"]
    return logits


def tests_of(broken: type[Broken]) -> type[LogitsProcessorTests]:
    @pytest.fixture
    def processor(self: object) -> LogitsProcessor:
        return broken(ExampleContext(), broken.Options())

    @pytest.fixture
    def reference(self: object) -> Reference | None:
        return pushed if broken is PushesTwice else None

    fixtures = {"processor": processor, "reference": reference}
    return type(f"Test{broken.__name__}", (LogitsProcessorTests,), fixtures)


for each in Broken.__subclasses__():
    globals()[f"Test{each.__name__}"] = tests_of(each)
