"""Token samplers that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmfw.core import Filters, RowNumbers, TokenSampler
from llmfw.core.testing import TokenSamplerTests
from llmfw.plugins.sampling_torch.sampler import TorchSampler


class IgnoresTemperature(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers._replace(temperature=torch.ones_like(numbers.top_p)), filters)


class IgnoresTopK(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        everything = torch.full_like(numbers.top_k, self.vocab_size)
        return super().sample(logits, numbers._replace(top_k=everything), filters)


class TakesTheFirstTemperature(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        first = numbers.temperature[:1].expand_as(numbers.temperature)
        return super().sample(logits, numbers._replace(temperature=first), filters)


class TakesTheFirstTopK(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        first = numbers.top_k[:1].expand_as(numbers.top_k).clone()
        return super().sample(logits, numbers._replace(top_k=first), filters)


class IgnoresTopP(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers._replace(top_p=torch.full_like(numbers.top_p, 2)), filters)


class IgnoresMinP(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers._replace(min_p=torch.zeros_like(numbers.min_p)), filters)


class TakesTheLikeliest(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return logits.argmax(dim=-1)


class SkipsFiltersOfLargeVocabularies(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        if self.vocab_size > 1000 and filters.largest_top_k == self.vocab_size:
            filters = Filters(False, False, False, self.vocab_size)
        return super().sample(logits, numbers, filters)


class DrawsItself(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        if self.vocab_size > 1000:
            numbers = numbers._replace(draws=torch.rand_like(numbers.draws))
        return super().sample(logits, numbers, filters)


class SharesTheFirstDraw(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        if self.vocab_size > 1000:
            numbers = numbers._replace(draws=numbers.draws[:1].expand(len(logits)).clone())
        return super().sample(logits, numbers, filters)


class DividesInPlace(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(
            logits.div_(numbers.temperature),
            numbers._replace(temperature=numbers.temperature * 0 + 1),
            filters,
        )


class ReturnsInt32(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        tokens = super().sample(logits, numbers, filters)
        return tokens.int() if filters.top_p else tokens


class DrawsForbidden(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        tokens = super().sample(logits, numbers, filters)
        return torch.where(numbers.draws > 0.9999, self.vocab_size - 2, tokens)


class FailsWithNaN(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return torch.where(logits.isnan().any(dim=-1), -1, super().sample(logits, numbers, filters))


class OfKind(TokenSamplerTests):
    kind: type[TokenSampler]

    @pytest.fixture
    def token_sampler(self) -> type[TokenSampler]:
        return self.kind


def test_class(kind: type[TokenSampler]) -> Any:
    """Return a test class for a token sampler."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in TorchSampler.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
