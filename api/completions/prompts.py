"""Reads the prompts of a completion request: texts or token ids, one or several, with or without a suffix."""

from __future__ import annotations

from typing import cast

import msgspec

from llmfw.api.text.encoder import PromptEncoder
from llmfw.api.text.generation import Generator
from llmfw.api.text.truncation import Truncation
from llmfw.core.base.errors import RequestError

from .fill_in import end_ids, find_layout, lay_out

MAX_PROMPTS = 2048

PromptField = str | list[str | int | list[int]]


class Prompt(msgspec.Struct, frozen=True):
    """One prompt.

    Attributes:
        token_ids: token ids that the model gets.
        text: text that the client sent; None if it sent token ids, or if the prompt is truncated.
    """

    token_ids: list[int]
    text: str | None


async def encode_prompts(field: PromptField, truncation: Truncation) -> list[Prompt]:
    """Return the prompts of a request's `prompt` field, encoded and truncated.

    Raises:
        RequestError: the field has no prompts or too many, mixes text and token ids, or has a text that is
            too long.
    """
    found = _each(field)
    encoded = await _encode_all(found, truncation.texts)
    kept = [truncation.cut(tokens) for tokens in encoded]
    return [
        Prompt(cut, each if isinstance(each, str) and cut is tokens else None)
        for each, tokens, cut in zip(found, encoded, kept, strict=True)
    ]


async def encode_fill_in(
    field: PromptField, suffix: str, generator: Generator
) -> tuple[list[Prompt], tuple[int, ...]]:
    """Return fill-in-the-middle prompts for a request, and the ids of the tokens that end the filled-in text.

    Args:
        field: the request's `prompt` field, with the prefixes.

    Raises:
        RequestError: as in `encode_prompts`; or the model's tokenizer has no tokens for filling in.
    """
    tokenizer = generator.tokenizer
    layout = find_layout(tokenizer)
    suffix_ids = await generator.encode(suffix, add_special_tokens=False)
    found = _each(field)
    prefixes = await _encode_all(found, generator.texts, add_special_tokens=False)
    generator.texts.check_together(len(found) * len(suffix_ids), "suffix")
    prompts = [
        Prompt(lay_out(layout, tokenizer, prefix, suffix_ids), each if isinstance(each, str) else None)
        for each, prefix in zip(found, prefixes, strict=True)
    ]
    return prompts, end_ids(layout, tokenizer)


async def _encode_all(
    prompts: list[str] | list[list[int]], encoder: PromptEncoder, *, add_special_tokens: bool = True
) -> list[list[int]]:
    if isinstance(prompts[0], str):
        texts = prompts
        if len(texts) == 1:
            return [await encoder.encode(texts[0], add_special_tokens=add_special_tokens)]
        return await encoder.encode_all(texts, "prompt", add_special_tokens=add_special_tokens)
    return prompts


def _each(field: PromptField) -> list[str] | list[list[int]]:
    """Return the prompts of a request's `prompt` field, either all as texts or all as token ids."""
    if isinstance(field, str):
        return [field]
    if not field:
        raise RequestError("prompt is an empty list; at least one prompt is needed", param="prompt")
    if len({type(item) for item in field}) > 1:
        raise RequestError(
            "prompt mixes kinds; it must be a string, token ids, or a list of strings or of lists of token ids",
            param="prompt",
        )
    if isinstance(field[0], int):
        return [cast("list[int]", field)]
    if len(field) > MAX_PROMPTS:
        raise RequestError(
            f"prompt holds {len(field)} prompts; at most {MAX_PROMPTS} are allowed", param="prompt"
        )
    return cast("list[str] | list[list[int]]", field)
