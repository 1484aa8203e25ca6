"""Decides which events of a stream are sent when each event repeats all tokens so far.

N such events have about N² / 2 tokens. With log probabilities of 128 named tokens, the events of a choice
with 1,900 tokens would have 7 GB.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.api.text.choice import Choice

FREE_BYTES = 2**24
"""Number of bytes of a choice's events before they are spaced."""

REPEATS = 32
"""Size of all events of a choice after that, in sizes of the latest event."""


@dataclass(slots=True)
class _Sent:
    """The events of one choice so far: their size in bytes, and the size and tokens of the last one."""

    total: int = 0
    size: int = 0
    tokens: int = 0
    per_token: float = 0.0

    def size_at(self, tokens: int) -> float:
        """Return the expected size of an event with this number of tokens."""
        return self.size + self.per_token * (tokens - self.tokens)


class EventSpacing:
    """Limits the events of each choice to FREE_BYTES plus REPEATS times the size of its latest event.

    So the N-th token of a choice with large events is sent together with about N / (2 * REPEATS) others. The
    last event, which has the whole output, is always sent.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _Sent] = {}

    def is_due(self, choice: Choice) -> bool:
        """Return whether the next event of a choice is sent."""
        sent = self._sent.get(choice.index)
        if sent is None or choice.text.finish_reason is not None:
            return True
        expected = sent.size_at(len(choice.text.token_ids))
        return sent.total + expected <= FREE_BYTES + REPEATS * expected

    def count(self, choice: Choice, size: int) -> None:
        """Count an event that is sent.

        Args:
            size: size of the event in bytes.
        """
        tokens, sent = len(choice.text.token_ids), self._sent.setdefault(choice.index, _Sent())
        if tokens > sent.tokens:
            sent.per_token = max(0.0, (size - sent.size) / (tokens - sent.tokens))
        sent.total, sent.size, sent.tokens = sent.total + size, size, tokens
