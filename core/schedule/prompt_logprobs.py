"""What is known so far of the log probabilities of a prompt, which is computed in several steps. No tensors."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.request import TokenLogprob


class PromptLogprobs:
    """The log probabilities of one prompt's tokens but the first, gathered from several steps.

    Args:
        prompt_len: tokens of the prompt.

    Attributes:
        records: those known so far, in order.
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
        """Return after which of the tokens [start, end) the logits are needed."""
        return range(start, min(end, self._prompt_len - 1)) if not self.is_complete else range(0)

    def take(self, start: int, records: Sequence[TokenLogprob]) -> None:
        """Add what was computed of the tokens from `start` on. After a retraction some may come a second time."""
        assert start <= len(self.records)
        self.records[start : start + len(records)] = records
