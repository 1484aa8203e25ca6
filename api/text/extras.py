"""Optional parts of a reply (`reply_extras`): reads which of them a request asks for, and builds them."""

from __future__ import annotations

from typing import Any

from llmfw.api.schemas.common import GenerationRequest, UsageOptions
from llmfw.api.schemas.token_fields import PromptLogprob
from llmfw.core.base.errors import EngineError, RequestError
from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.tokenizer import Tokenizer

from .choice import Choice
from .reply_extras import Extras
from .scored_tokens import LOWEST_LOGPROB
from .slices import ListWriter, Slices


def extras_of(body: GenerationRequest, echo: str = "") -> Extras:
    """Return the optional parts of the reply that a request asks for.

    Raises:
        RequestError: `prompt_logprobs` is true, or is set for a stream.
    """
    wanted = body.prompt_logprobs
    if wanted is True:
        raise RequestError(
            "prompt_logprobs is true; it must be a number from 0 to 20", param="prompt_logprobs"
        )
    num_top = None if wanted is False else wanted
    if num_top is not None and body.stream:
        raise RequestError(
            f"prompt_logprobs is {num_top} and stream is true; only a reply that is not streamed has them",
            param="prompt_logprobs",
        )
    return Extras(
        token_ids=bool(body.return_token_ids),
        names_ids=bool(body.return_tokens_as_token_ids),
        prompt_logprobs=num_top,
        usage=includes_usage(body.stream_options, "continuous_usage_stats"),
        echo=echo,
    )


def includes_usage(options: UsageOptions | None, field: str = "include_usage") -> bool:
    """Return whether the client has set this field of `stream_options` to true."""
    return options is not None and bool(getattr(options, field))


class NewTokenIds:
    """Tracks which token ids of each choice have not been sent in the stream yet."""

    def __init__(self) -> None:
        self._num_sent: dict[int, int] = {}

    def take(self, choice: Choice) -> list[int]:
        """Return the token ids of a choice that have not been sent yet. They then count as sent."""
        token_ids = choice.text.token_ids
        start = self._num_sent.get(choice.index, 0)
        self._num_sent[choice.index] = len(token_ids)
        return token_ids[start:]


async def prompt_logprobs_of(choice: Choice, num_top: int, tokenizer: Tokenizer, slices: Slices) -> Any:
    """Return the `PromptLogprobs` of a prompt as a `msgspec.Raw`: its tokens, and the likely tokens at each position.

    Args:
        choice: the prompt's first choice, after its end.
        slices: scheduler of the work on large lists, shared by all requests.

    Raises:
        EngineError: the engine did not return log probabilities for every token after the first.
    """
    prompt, records = choice.request.prompt, choice.text.prompt_logprobs or []
    if len(records) != len(prompt) - 1:
        raise EngineError("the engine gave no log probabilities of the prompt, though it was asked for them")

    def entry(token_id: int, logprob: float, rank: int | None) -> PromptLogprob:
        text = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        return PromptLogprob(max(logprob, LOWEST_LOGPROB), rank, text)

    def place(scored: tuple[int, TokenLogprob]) -> dict[str, PromptLogprob]:
        token_id, record = scored
        found = {str(token_id): entry(token_id, record.logprob, record.rank or None)}
        likely = zip(record.top_ids[:num_top], record.top_logprobs, strict=False)
        for rank, (top_id, logprob) in enumerate(likely, 1):
            found.setdefault(str(top_id), entry(top_id, logprob, rank))
        return found

    written = ListWriter(slices)
    await written.extend([None], lambda item: item)
    await written.extend(zip(prompt[1:], records, strict=True), place, 1 + num_top)
    return written.json()
