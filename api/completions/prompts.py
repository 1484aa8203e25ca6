"""The prompts of a completion's body: texts or token ids, one or many, with a suffix or without."""

from __future__ import annotations

from typing import cast

import msgspec

from llmfw.core.errors import RequestError

from ..generation import Generator
from .fill_in import end_ids, find_layout, lay_out

MAX_PROMPTS = 2048

PromptField = str | list[str | int | list[int]]


class Prompt(msgspec.Struct, frozen=True):
    """One prompt.

    Attributes:
        token_ids: as the model gets them.
        text: as the client gave it; None: it gave token ids.
    """

    token_ids: list[int]
    text: str | None


async def encode_prompts(field: PromptField, generator: Generator) -> list[Prompt]:
    """Return each prompt in the body's field.

    Raises:
        RequestError: there are none, too many, or of several kinds.
    """
    return [
        Prompt(await generator.encode(each), each) if isinstance(each, str) else Prompt(each, None)
        for each in _each(field)
    ]


async def encode_fill_in(
    field: PromptField, suffix: str, generator: Generator
) -> tuple[list[Prompt], tuple[int, ...]]:
    """Return each prompt, made to ask for what comes between it and the suffix, and the tokens that end that.

    Raises:
        RequestError: as `encode_prompts`, or the model knows no way to be asked.
    """
    tokenizer = generator.tokenizer
    layout = find_layout(tokenizer)
    suffix_ids = await generator.encode(suffix, add_special_tokens=False)
    prompts = []
    for each in _each(field):
        text = each if isinstance(each, str) else None
        prefix = await generator.encode(each, add_special_tokens=False) if isinstance(each, str) else each
        prompts.append(Prompt(lay_out(layout, tokenizer, prefix, suffix_ids), text))
    return prompts, end_ids(layout, tokenizer)


def _each(field: PromptField) -> list[str] | list[list[int]]:
    """Return the prompts in the body's field, all texts or all token ids."""
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
