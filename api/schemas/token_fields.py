"""Fields of chats and completions that control single tokens. Their names come from vLLM and SGLang."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .logprobs import NumTop

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
PromptLength = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class TokenFields(msgspec.Struct, kw_only=True):
    """Fields that control single tokens. For a field that is None, the server's default applies.

    Attributes:
        stop_regex: regular expressions. The text ends at the first match.
        include_stop_str_in_output, no_stop_trim: whether the text includes the stop string, match or stop
            token that ended it (vLLM's name and SGLang's name).
        allowed_token_ids: ids of the only tokens that may be generated.
        bad_words: words that must not be generated. They are forbidden as the tokens that encode them.
        prompt_logprobs: number of most likely tokens to report for each token of the prompt.
        logprob_token_ids: ids of tokens whose log probabilities to report for each generated token, instead of
            those of the most likely tokens.
        return_token_ids: whether the reply has the token ids of the prompt and of the text.
        return_tokens_as_token_ids: whether log probabilities name tokens as "token_id:ID".
        constrained_logprobs: whether log probabilities are computed from the adjusted and masked logits.
        truncate_prompt_tokens: number of tokens to keep at the end of the prompt; -1: as many as fit into the
            context.
    """

    stop_regex: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    allowed_token_ids: list[TokenId] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: NumTop | bool | None = None
    logprob_token_ids: list[TokenId] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    constrained_logprobs: bool | None = None
    truncate_prompt_tokens: PromptLength | None = None


class PromptLogprob(msgspec.Struct):
    """A token at one position of the prompt, in vLLM's format. `rank` is 1 for the most likely token."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""One item for each token of a prompt: token id → log probability. The first token's is null."""
