"""Collects the log probabilities of a prompt that is computed in several steps. No tensors."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.request import TokenLogprob


class PromptLogprobs:
    """Log probabilities of one prompt's tokens except the first, collected from several steps.

    Args:
        prompt_len: number of prompt tokens.

    Attributes:
        records: known log probabilities, in order.
    """

    __slots__ = ("_prompt_len", "records")

    def __init__(self, prompt_len: int) -> None:
        self._prompt_len = prompt_len
        self.records: list[TokenLogprob] = []

    @property
    def is_complete(self) -> bool:
        """Whether all are known."""
        return len(self.records) == self._prompt_len - 1

    def wanted(self, start: int, end: int) -> range:
        """Return the tokens of [start, end) after which the logits are needed."""
        return range(start, min(end, self._prompt_len - 1)) if not self.is_complete else range(0)

    def take(self, start: int, records: Sequence[TokenLogprob]) -> None:
        """Add the records of the tokens from `start` on. After a retraction, some may arrive a second time."""
        assert start <= len(self.records)
        self.records[start : start + len(records)] = records
