"""Collects the log probabilities of a prompt whose tokens are computed in several steps."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.request import TokenLogprob


class PromptLogprobs:
    """Log probabilities of one prompt's tokens from token `start` on, collected from several steps.

    Args:
        prompt_len: number of prompt tokens.
        start: index of the first token whose log probability is requested, at least 1.

    Attributes:
        records: known log probabilities, in order.
    """

    __slots__ = ("_first", "_prompt_len", "records")

    def __init__(self, prompt_len: int, start: int = 1) -> None:
        self._prompt_len = prompt_len
        self._first = start - 1  # position whose logits give the first log probability
        self.records: list[TokenLogprob] = []

    @property
    def is_complete(self) -> bool:
        """Whether all log probabilities are known."""
        return self.num_known == self._prompt_len - 1

    @property
    def num_known(self) -> int:
        """Number of leading positions whose logits are not needed, or no longer needed."""
        return self._first + len(self.records)

    def wanted(self, start: int, end: int) -> range:
        """Return the positions in [start, end) whose logits are needed; empty if all records are known."""
        return (
            range(max(start, self._first), min(end, self._prompt_len - 1))
            if not self.is_complete
            else range(0)
        )

    def take(self, start: int, records: Sequence[TokenLogprob]) -> None:
        """Store records of the positions that `wanted` returned for `start`.

        After a retraction, tokens are computed again; their new records replace the old ones.
        """
        index = max(0, start - self._first)
        assert index <= len(self.records)
        self.records[index : index + len(records)] = records
