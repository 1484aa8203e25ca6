"""Converts scored tokens to the log probability entries of chat and completion replies.

Log probabilities are natural logarithms of the model's own probabilities, before temperature, penalties and
grammar.

A chat has entries for the tokens of its content. Tokens of reasoning and tool calls, the token that ends the
text, and text removed by a stop string have none. A chunk of a stream has the entries of the tokens whose
text starts in the chunk, so all chunks together have the entries of the whole reply. A completion has an
entry for each generated token, including the one that ends it, but none for text removed by a stop string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from llmfw.api.schemas.logprobs import ChatLogprobs, CompletionLogprobs, TokenEntry, TopLogprob
from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.tokenizer import Tokenizer

from .scored_tokens import Likely, ScoredContent, ScoredToken, score
from .slices import ListWriter, Slices
from .text_stream import Delta


def chat_logprobs(deltas: Iterable[Delta], *, names_ids: bool = False) -> ChatLogprobs | None:
    """Return the log probability entries of these deltas; None if they have no scored tokens.

    Args:
        names_ids: whether to name tokens as "token_id:ID" instead of by their text.
    """
    tokens = tokens_of(deltas)
    return ChatLogprobs([_entry(token, names_ids) for token in tokens]) if tokens else None


async def whole_chat_logprobs(
    deltas: Iterable[Delta], slices: Slices, *, names_ids: bool = False
) -> ChatLogprobs | None:
    """Return the log probability entries of a whole answer, encoded as JSON; None if no token is scored.

    Like `chat_logprobs`, but other requests can run in between, because the entries are formatted in slices.
    """
    tokens = tokens_of(deltas)
    if not tokens:
        return None
    content = ListWriter(slices)
    weight = 2 * (1 + len(tokens[0].top) + len(tokens[0].given))  # each entry has its bytes as a list
    await content.extend(tokens, partial(_entry, names_ids=names_ids), weight)
    return ChatLogprobs(content.json())


def tokens_of(deltas: Iterable[Delta]) -> list[ScoredToken]:
    """Return the scored tokens of these deltas, in order."""
    return [token for delta in deltas if isinstance(delta, ScoredContent) for token in delta.tokens]


def completion_logprobs(
    tokens: Sequence[ScoredToken], offset: int, *, names_ids: bool = False
) -> CompletionLogprobs:
    """Return the log probability entries of a completion's tokens.

    Args:
        offset: characters to add to the tokens' starts, such as the length of an echoed prompt.
        names_ids: whether to name tokens as "token_id:ID" instead of by their text.
    """
    return CompletionLogprobs(
        tokens=[_name(token, names_ids) for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[_top(token, names_ids) for token in tokens],
        text_offset=[offset + token.start for token in tokens],
    )


def prompt_tokens(
    token_ids: Sequence[int], logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer, text: str
) -> Iterator[ScoredToken]:
    """Yield the tokens of a prompt, each with the start of its text in the prompt's text.

    Args:
        logprobs: log probabilities of all tokens but the first.
        text: text of the prompt, with or without special tokens.
    """
    detokenizer, place = tokenizer.detokenizer(skip_special_tokens=False), 0
    for token_id, logprob in zip(token_ids, chain([None], logprobs), strict=True):
        yield score(min(place, len(text)), token_id, logprob, tokenizer.token_bytes)
        piece = detokenizer.feed([token_id])
        if not text.startswith(piece, place) and text.startswith(piece.lstrip(), place):
            piece = piece.lstrip()  # the text lacks the space that the detokenizer adds between words
        if text.startswith(piece, place) or tokenizer.decode([token_id]):
            place += len(piece)  # else a special token that the text does not have


def mean_logprob(tokens: Sequence[ScoredToken]) -> float:
    """Return the mean log probability of the tokens; minus infinity if none has one."""
    found = [token.logprob for token in tokens if token.logprob is not None]
    return sum(found) / len(found) if found else -float("inf")


def _entry(token: ScoredToken, names_ids: bool) -> TokenEntry:
    return TokenEntry(
        _text(token, names_ids),
        0.0 if token.logprob is None else token.logprob,
        list(token.bytes),
        [TopLogprob(_text(top, names_ids), top.logprob, list(top.bytes)) for top in _alternatives(token)],
    )


def _top(token: ScoredToken, names_ids: bool) -> dict[str, float] | None:
    """Return the log probabilities of the token's alternatives and of the token itself, by name.

    Returns None if the token has no log probability. If two tokens have the same text, the more likely one
    is used.
    """
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for each in _alternatives(token):
        name = _name(each, names_ids)
        found[name] = max(each.logprob, found.get(name, each.logprob))
    found.setdefault(_name(token, names_ids), token.logprob)
    return found


def _alternatives(token: ScoredToken) -> Iterable[Likely]:
    """Return the tokens to report for the position of a token.

    As in vLLM, these are the most likely tokens, or, if the request names tokens, the token itself and then
    the named ones, each once.
    """
    if not token.given or token.logprob is None:
        return token.top
    found = {token.token_id: Likely(token.token_id, token.bytes, token.logprob)}
    for each in token.given:
        found.setdefault(each.token_id, each)
    return found.values()


def _text(token: ScoredToken | Likely, names_ids: bool) -> str:
    return f"token_id:{token.token_id}" if names_ids else token.bytes.decode("utf-8", "replace")


def _name(token: ScoredToken | Likely, names_ids: bool) -> str:
    r"""Return a token's text, or its id as "token_id:ID".

    If the token is only part of a character, return its bytes in OpenAI's form: `bytes:\xf0\x9f`.
    """
    if names_ids:
        return f"token_id:{token.token_id}"
    try:
        return token.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)
