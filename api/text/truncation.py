"""Cuts prompts to their last tokens (`truncate_prompt_tokens`)."""

from __future__ import annotations

from llmfw.core.base.errors import RequestError

from .encoder import PromptEncoder
from .generation import Generator

LONGEST = 2**17
"""Approximate maximum number of tokens of a prompt before truncation, unless the context is longer.

Encoding longer prompts would take too much memory.
"""

FIT = -1
"""Value of the field that keeps as many tokens as fit into the context."""


class Truncation:
    """The truncation that a request asks for.

    Args:
        length: number of tokens to keep at the end of the prompt; FIT: as many as leave room for the output;
            None: all.
        max_tokens: maximum number of new tokens; None: no maximum.

    Raises:
        RequestError: `length` is 0.
    """

    def __init__(self, length: int | None, generator: Generator, max_tokens: int | None) -> None:
        if length == 0:
            raise RequestError(
                "truncate_prompt_tokens is 0; it must be 1 or more, or -1 for what fits into the context",
                param="truncate_prompt_tokens",
            )
        self._length = length
        self._generator = generator
        self._room = generator.info.max_model_len - (max_tokens or 1)

    @property
    def texts(self) -> PromptEncoder:
        """The encoder of prompts.

        If prompts are truncated, the encoder accepts prompts longer than the context.
        """
        generator = self._generator
        if self._length is None:
            return generator.texts
        longest = max(LONGEST, generator.info.max_model_len)
        name = "the longest prompt that is truncated"
        return PromptEncoder(generator.tokenizer, lambda: longest, generator.threads, name)

    def cut(self, prompt: list[int]) -> list[int]:
        """Return the last tokens of a prompt, or the same list if it is short enough."""
        if self._length is None:
            return prompt
        length = max(1, self._room) if self._length == FIT else self._length
        return prompt[-length:] if len(prompt) > length else prompt
