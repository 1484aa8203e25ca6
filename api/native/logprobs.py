"""Formats log probabilities for SGLang's native API: lists of [log probability, token id, text or null]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmfw.api.schemas.native import GenerateRequest, MetaInfo, Scored
from llmfw.api.text.generation import Choice
from llmfw.api.text.scored_tokens import ScoredToken, score
from llmfw.api.text.slices import ListWriter, Slices
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
        body: request body, which selects the log probabilities to report.
        slices: scheduler of the work on large lists, shared by all requests.
    """

    def __init__(self, body: GenerateRequest, tokenizer: Tokenizer, slices: Slices) -> None:
        self._start = -1 if body.logprob_start_len is None else body.logprob_start_len
        self._with_top = bool(body.top_logprobs_num)
        self._with_text = bool(body.return_text_in_logprobs)
        self._weight = 1 + (body.top_logprobs_num or 0)
        self._tokenizer = tokenizer
        self._slices = slices
        self._written: dict[int, tuple[_Lists, _Lists]] = {}  # of prompt and output, by choice

    async def fill(self, meta: MetaInfo, choice: Choice) -> None:
        """Set the log probabilities in `meta` to those of a choice so far.

        Each token is formatted only once.
        """
        if choice.index not in self._written:
            prompt, output = _Lists(self._slices), _Lists(self._slices)
            if self._start >= 0:
                await self._write(prompt, self._prompt(choice), self._weight)
            self._written[choice.index] = prompt, output
        prompt, output = self._written[choice.index]
        await self._write(output, choice.text.scored_tokens[output.own.num_items :], self._weight)
        meta.output_token_logprobs = output.own.json()
        if self._with_top:
            meta.output_top_logprobs = output.top.json()
        if self._start >= 0:
            meta.input_token_logprobs = prompt.own.json()
            if self._with_top:
                meta.input_top_logprobs = prompt.top.json()

    async def _write(self, lists: _Lists, tokens: Iterable[ScoredToken], weight: int) -> None:
        async for some in self._slices.of(tokens, weight):
            await lists.own.extend(some, self._own, 0)
            if self._with_top:
                await lists.top.extend(some, self._top, 0)

    def _prompt(self, choice: Choice) -> Iterable[ScoredToken]:
        """Return the prompt's tokens from `logprob_start_len` on.

        As in SGLang, the first of these tokens has no log probability.
        """
        token_ids, found = choice.request.prompt, choice.text.prompt_logprobs or []
        if len(found) != len(token_ids) - 1:
            raise EngineError(
                "the engine gave no log probabilities of the prompt, though it was asked for them"
            )
        logprobs: Sequence[TokenLogprob | None] = [None, *found[self._start :]]
        return (
            score(0, token_id, logprob, self._tokenizer.token_bytes)
            for token_id, logprob in zip(token_ids[self._start :], logprobs, strict=False)
        )

    def _own(self, token: ScoredToken) -> Scored:
        return token.logprob, token.token_id, self._text(token.bytes)

    def _top(self, token: ScoredToken) -> list[Scored] | None:
        return [(top.logprob, top.token_id, self._text(top.bytes)) for top in token.top] or None

    def _text(self, token: bytes) -> str | None:
        return token.decode("utf-8", "replace") if self._with_text else None


class _Lists:
    """Two lists with one item per token.

    Attributes:
        own: each token's own log probability.
        top: the log probabilities of the most likely tokens at each token's position.
    """

    def __init__(self, slices: Slices) -> None:
        self.own = ListWriter(slices)
        self.top = ListWriter(slices)
