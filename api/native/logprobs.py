"""Formats log probabilities for SGLang's native API: lists of [log probability, token id, text or null]."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.api.schemas.native import GenerateRequest, MetaInfo, Scored
from llmfw.api.text.generation import Choice
from llmfw.api.text.scored_tokens import ScoredToken, score
from llmfw.core.base.errors import EngineError, RequestError
from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.tokenizer import Tokenizer


def num_top(body: GenerateRequest) -> int | None:
    """Return how many top tokens to report per output token; None if no log probabilities are requested."""
    if not body.return_logprob:
        if body.top_logprobs_num:
            raise RequestError(
                f"top_logprobs_num is {body.top_logprobs_num}; it needs return_logprob to be true",
                param="top_logprobs_num",
            )
        return None
    return body.top_logprobs_num or 0


def num_prompt_top(body: GenerateRequest) -> int | None:
    """Return how many top tokens to report per prompt token; None if no log probabilities are requested."""
    start = -1 if body.logprob_start_len is None else body.logprob_start_len
    if start < -1:
        raise RequestError(
            f"logprob_start_len is {start}; it must be -1 (not of the prompt) or a place in it",
            param="logprob_start_len",
        )
    return num_top(body) if start >= 0 else None


class LogprobForm:
    """Formats log probabilities in the replies to one request.

    Args:
        body: request whose `return_logprob` is true.
    """

    def __init__(self, body: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._start = -1 if body.logprob_start_len is None else body.logprob_start_len
        self._with_top = bool(body.top_logprobs_num)
        self._with_text = bool(body.return_text_in_logprobs)
        self._tokenizer = tokenizer

    def fill(self, meta: MetaInfo, choice: Choice) -> None:
        """Write a choice's log probabilities so far into the metadata of its reply."""
        output = choice.text.scored_tokens
        meta.output_token_logprobs = self._own(output)
        if self._with_top:
            meta.output_top_logprobs = self._top(output)
        if self._start >= 0:
            prompt = self._prompt(choice)
            meta.input_token_logprobs = self._own(prompt)
            if self._with_top:
                meta.input_top_logprobs = self._top(prompt)

    def _prompt(self, choice: Choice) -> list[ScoredToken]:
        """Return the prompt's tokens from the requested start on. The very first has no log probability."""
        token_ids, found = choice.request.prompt, choice.text.prompt_logprobs or []
        if len(found) != len(token_ids) - 1:
            raise EngineError(
                "the engine gave no log probabilities of the prompt, though it was asked for them"
            )
        logprobs: Sequence[TokenLogprob | None] = [None, *found[self._start :]]
        return [
            score(0, token_id, logprob, self._tokenizer.token_bytes)
            for token_id, logprob in zip(token_ids[self._start :], logprobs, strict=False)
        ]

    def _own(self, tokens: Sequence[ScoredToken]) -> list[Scored]:
        return [(token.logprob, token.token_id, self._text(token.bytes)) for token in tokens]

    def _top(self, tokens: Sequence[ScoredToken]) -> list[list[Scored] | None]:
        return [
            [(top.logprob, top.token_id, self._text(top.bytes)) for top in token.top] or None
            for token in tokens
        ]

    def _text(self, token: bytes) -> str | None:
        return token.decode("utf-8", "replace") if self._with_text else None
