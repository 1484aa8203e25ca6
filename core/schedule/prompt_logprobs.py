"""Collects the log probabilities of a prompt whose tokens are computed in several steps."""

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
        """Whether all log probabilities are known."""
        return len(self.records) == self._prompt_len - 1

    def wanted(self, start: int, end: int) -> range:
        """Return the positions in [start, end) whose logits are needed; empty if all records are known."""
        return range(start, min(end, self._prompt_len - 1)) if not self.is_complete else range(0)

    def take(self, start: int, records: Sequence[TokenLogprob]) -> None:
        """Store records from index `start` on.

        After a retraction, tokens are computed again; their new records replace the old ones.
        """
        assert start <= len(self.records)
        self.records[start : start + len(records)] = records
