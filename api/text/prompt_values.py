"""Limits the log probabilities of prompt tokens in one reply. Every choice has its own copy of them."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import RequestError

MAX_PROMPT_VALUES = 2**20
"""Maximum number of log probabilities of prompt tokens in a reply with several prompts or choices.

A value takes about 75 bytes of the reply. A single prompt with a single choice has no other limit than the
context.
"""


def check_prompt_values(prompts: Sequence[Sequence[int]], width: int, copies: int, param: str) -> None:
    """Refuse a request whose reply would have too many log probabilities of prompt tokens.

    Args:
        prompts: token ids of each prompt.
        width: number of values at each position, such as 1 for the token's own and 20 for the most likely.
        copies: number of choices for each prompt.
        param: field of the request for the error.

    Raises:
        RequestError: there are too many log probabilities.
    """
    total = sum(map(len, prompts)) * width * copies
    if total > MAX_PROMPT_VALUES and (len(prompts) > 1 or copies > 1):
        raise RequestError(
            f"{param} asks for {total} log probabilities of prompt tokens in {len(prompts) * copies} choices; at most "
            f"{MAX_PROMPT_VALUES} are allowed in one reply: ask for fewer choices, prompts or values",
            param=param,
        )
