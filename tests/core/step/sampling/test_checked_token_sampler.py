"""A token sampler's wrong answers are told as its own, before another component stumbles over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers, TokenSampler
from llmfw.core.plugin.choice import Created
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.step.sampling.checked_token_sampler import CheckedTokenSampler

VOCAB_SIZE = 5
ENTRY = Entry("token_sampler", "odd", "x:Y", "odd_plugin", "odd", "1.0")
COLUMN = torch.ones(3, 1)
NUMBERS = RowNumbers(torch.zeros(3, dtype=torch.float64), COLUMN, COLUMN.long(), COLUMN, COLUMN)


class Answers(TokenSampler):
    """Returns what a test says."""

    answer: Callable[[torch.Tensor], object]

    @classmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        return None

    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return self.answer(logits.argmax(-1))  # type: ignore[return-value]


def sample(answer: Callable[[torch.Tensor], object]) -> torch.Tensor:
    inner = Answers(VOCAB_SIZE, torch.device("cpu"), may_wait=True)
    inner.answer = answer
    checked = CheckedTokenSampler(Created(ENTRY, inner))
    return checked.sample(torch.eye(3, VOCAB_SIZE), NUMBERS, Filters(False, False, False, VOCAB_SIZE))


def test_token_ids_pass() -> None:
    assert sample(lambda tokens: tokens).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda tokens: tokens - 1, "the token id -1; ids are from 0 to 4"),
        (lambda tokens: tokens + 3, "the token id 5; ids are from 0 to 4"),
        (lambda tokens: torch.full_like(tokens, 2**63 - 1), f"the token id {2**63 - 1}"),
        (lambda tokens: tokens.float(), r"tokens of \[3\] float32 on cpu; they must be \[3\] int64 on cpu"),
        (lambda tokens: tokens[:, None], r"tokens of \[3, 1\] int64"),
        (lambda tokens: tokens.to_sparse(), "another layout; they must be dense"),
        (lambda tokens: tokens.tolist(), "a list, not the tokens"),
    ],
)
def test_other_answers_are_the_token_sampler_s_fault(
    answer: Callable[[torch.Tensor], object], complaint: str
) -> None:
    with pytest.raises(WrongReturnError, match=complaint) as caught:
        sample(answer)
    assert caught.value.entry is ENTRY
