"""The sizes of one step: what an engine reports before it computes the step."""

from __future__ import annotations

from typing import NamedTuple


class StepSizes(NamedTuple):
    """Sizes of one step as plain numbers, without tokens, texts, ids or tenants.

    Attributes:
        num_tokens: number of tokens that the step computes.
        num_sequences: number of sequences in the step.
        num_prefilling: number of these sequences that compute tokens of their prompt.
        num_drafted: number of sequences whose drafted tokens the step checks.
        longest: length in tokens of the longest sequence in the step.
        num_running, num_waiting: number of running sequences, and of waiting ones.
        num_used_tokens: number of KV cache slots that running sequences use.
    """

    num_tokens: int
    num_sequences: int = 0
    num_prefilling: int = 0
    num_drafted: int = 0
    longest: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_used_tokens: int = 0
