"""Formats log probabilities for SGLang's native API: lists of [log probability, token id, text or null]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmfw.api.schemas.native import GenerateRequest, MetaInfo, Scored
from llmfw.api.text.choice import Choice
from llmfw.api.text.scored_tokens import Likely, ScoredToken, score
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
    return num_top(body) if _start_of(body) >= 0 else None


def check_start(body: GenerateRequest, prompts: Sequence[Sequence[int]]) -> None:
    """Raise RequestError if `logprob_start_len` is below -1 or beyond the end of a prompt."""
    start = _start_of(body)
    if start < -1:
        raise RequestError(
            f"logprob_start_len is {start}; it must be -1 (not of the prompt) or a place in it",
            param="logprob_start_len",
        )
    shortest = min(map(len, prompts), default=0)
    if body.return_logprob and start > shortest:
        raise RequestError(
            f"logprob_start_len is {start}, and a prompt has {shortest} tokens; it must be at most as long as each "
            "prompt",
            param="logprob_start_len",
        )


def first_scored(body: GenerateRequest, prompt_len: int) -> int:
    """Return the index of the first prompt token whose log probability the engine has to report, at least 1.

    The token at `logprob_start_len` has no log probability in the reply. The engine reports the log
    probability of at least one prompt token.
    """
    return max(1, min(_start_of(body) + 1, prompt_len - 1))


class LogprobForm:
    """Formats log probabilities in the replies to one request.

    Args:
        body: request body, which selects the log probabilities to report.
        slices: scheduler of the work on large lists, shared by all requests.
    """

    def __init__(self, body: GenerateRequest, tokenizer: Tokenizer, slices: Slices) -> None:
        self._start = _start_of(body)
        self._with_top = bool(body.top_logprobs_num)
        self._with_text = bool(body.return_text_in_logprobs)
        self._weight = 1 + (body.top_logprobs_num or 0)  # without named tokens
        self._tokenizer = tokenizer
        self._slices = slices
        self._prompts: dict[int, _Lists] = {}  # by index of the prompt's first choice
        self._outputs: dict[int, _Lists] = {}  # by index of the choice

    def is_ready(self, first: Choice) -> bool:
        """Return whether a prompt's log probabilities are known.

        Args:
            first: the prompt's first choice, which has the log probabilities.
        """
        return self._start < 0 or first.text.prompt_logprobs is not None

    async def fill(self, meta: MetaInfo, choice: Choice, first: Choice, *, unread: bool = False) -> None:
        """Set the log probabilities in `meta` to the choice's log probabilities so far.

        Each token is formatted only once.

        Args:
            first: the first choice of the same prompt.
            unread: whether the reply omits the generated tokens.
        """
        num_given = len(choice.request.logprob_token_ids)
        weight = self._weight + num_given
        if first.index not in self._prompts:
            self._prompts[first.index] = prompt = _Lists(self._slices)
            if self._start >= 0:
                await self._write(prompt, self._prompt(first), weight, num_given)
        if choice.index not in self._outputs:
            self._outputs[choice.index] = _Lists(self._slices)
        prompt, output = self._prompts[first.index], self._outputs[choice.index]
        if not unread:
            new = choice.text.scored_tokens[output.own.num_items :]
            await self._write(output, new, weight, num_given)
        elif num_given and not output.given.num_items:
            await output.given.extend(choice.text.scored_tokens[:1], self._given, weight)
        meta.input_token_logprobs = prompt.own.json()
        meta.output_token_logprobs = output.own.json()
        meta.output_token_logprobs_length = output.own.num_items
        if self._with_top:
            meta.input_top_logprobs = prompt.top.json()
            meta.output_top_logprobs = output.top.json()
        if num_given:
            meta.input_token_ids_logprobs = prompt.given.json()
            meta.output_token_ids_logprobs = output.given.json()

    async def _write(self, lists: _Lists, tokens: Iterable[ScoredToken], weight: int, num_given: int) -> None:
        async for some in self._slices.of(tokens, weight):
            await lists.own.extend(some, self._own, 0)
            if self._with_top:
                await lists.top.extend(some, self._top, 0)
            if num_given:
                await lists.given.extend(some, self._given, 0)

    def _prompt(self, choice: Choice) -> Iterable[ScoredToken]:
        """Return the prompt's tokens from `logprob_start_len` on.

        As in SGLang, the first of these tokens has no log probability.
        """
        token_ids, found = choice.request.prompt, choice.text.prompt_logprobs or []
        first = choice.request.prompt_logprobs_start
        if len(found) != len(token_ids) - first:
            raise EngineError(
                "the engine gave no log probabilities of the prompt, though it was asked for them"
            )
        logprobs: Sequence[TokenLogprob | None] = [None, *found[self._start + 1 - first :]]
        return (
            score(0, token_id, logprob, self._tokenizer.token_bytes)
            for token_id, logprob in zip(token_ids[self._start :], logprobs, strict=False)
        )

    def _own(self, token: ScoredToken) -> Scored:
        return token.logprob, token.token_id, self._text(token.bytes)

    def _top(self, token: ScoredToken) -> list[Scored] | None:
        return self._scored(token.top)

    def _given(self, token: ScoredToken) -> list[Scored] | None:
        return self._scored(token.given)

    def _scored(self, likely: Sequence[Likely]) -> list[Scored] | None:
        return [(each.logprob, each.token_id, self._text(each.bytes)) for each in likely] or None

    def _text(self, token: bytes) -> str | None:
        return token.decode("utf-8", "replace") if self._with_text else None


def _start_of(body: GenerateRequest) -> int:
    return -1 if body.logprob_start_len is None else body.logprob_start_len


class _Lists:
    """Lists with one item per token.

    Attributes:
        own: each token's own log probability.
        top: the log probabilities of the most likely tokens at each token's position.
        given: the log probabilities of the tokens that the request names, at each token's position. If
            nothing is generated, the output has the log probabilities at the position after the prompt, as in
            SGLang.
    """

    def __init__(self, slices: Slices) -> None:
        self.own = ListWriter(slices)
        self.top = ListWriter(slices)
        self.given = ListWriter(slices)
