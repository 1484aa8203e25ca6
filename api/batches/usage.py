"""Sums the token counts in a job's results, for all endpoints."""

from __future__ import annotations

import msgspec

from llmfw.core.interfaces.batch_store import BatchUsage


class _PromptDetails(msgspec.Struct):
    cached_tokens: int = 0


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class _Counts(msgspec.Struct):
    """Usage fields of chats, completions and embeddings, and the fields of responses, whose names differ."""

    prompt_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens: int = 0
    completion_tokens_details: _OutputDetails | None = None
    input_tokens: int = 0
    input_tokens_details: _PromptDetails | None = None
    output_tokens: int = 0
    output_tokens_details: _OutputDetails | None = None


class _Body(msgspec.Struct):
    usage: _Counts | None = None


class _Response(msgspec.Struct):
    body: _Body


class _Line(msgspec.Struct):
    response: _Response


_decode = msgspec.json.Decoder(_Line).decode


class UsageSum:
    """Sum of the token counts of the lines added so far."""

    def __init__(self) -> None:
        self._input = self._cached = self._output = self._reasoning = 0

    def add(self, line: bytes) -> None:
        """Add the token counts of a line of an output file, if it has any."""
        counts = _decode(line).response.body.usage
        if counts is None:
            return
        self._input += counts.prompt_tokens + counts.input_tokens
        self._output += counts.completion_tokens + counts.output_tokens
        for prompt in (counts.prompt_tokens_details, counts.input_tokens_details):
            self._cached += prompt.cached_tokens if prompt else 0
        for output in (counts.completion_tokens_details, counts.output_tokens_details):
            self._reasoning += output.reasoning_tokens if output else 0

    def total(self) -> BatchUsage:
        """Return the sums so far."""
        return BatchUsage(
            input_tokens=self._input,
            cached_tokens=self._cached,
            output_tokens=self._output,
            reasoning_tokens=self._reasoning,
        )
