"""Fill-in-the-middle prompts: ask for the text between a prefix and a suffix.

A prompt uses the first layout whose special tokens are all in the model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.tokenizer import Tokenizer

PREFIX, SUFFIX = 0, 1


class Layout(msgspec.Struct, frozen=True):
    """The order of special tokens, prefix and suffix in a fill-in-the-middle prompt.

    Attributes:
        parts: names of special tokens in the order of the prompt. PREFIX and SUFFIX stand for the two texts.
        ends: names of tokens that end the filled-in text, in addition to the end-of-sequence tokens.
    """

    parts: tuple[str | int, ...]
    ends: tuple[str, ...] = ()


LAYOUTS = (
    # Qwen2.5-Coder, CodeGemma; then StarCoder, Granite; SantaCoder
    Layout(("<|fim_prefix|>", PREFIX, "<|fim_suffix|>", SUFFIX, "<|fim_middle|>"), ("<|file_separator|>",)),
    Layout(("<fim_prefix>", PREFIX, "<fim_suffix>", SUFFIX, "<fim_middle>")),
    Layout(("<fim-prefix>", PREFIX, "<fim-suffix>", SUFFIX, "<fim-middle>")),
    # DeepSeek-Coder and its successors
    Layout(("<｜fim▁begin｜>", PREFIX, "<｜fim▁hole｜>", SUFFIX, "<｜fim▁end｜>")),
    # CodeLlama
    Layout(("▁<PRE>", PREFIX, "▁<SUF>", SUFFIX, "▁<MID>"), ("▁<EOT>",)),
    # Codestral: the suffix comes first
    Layout(("[SUFFIX]", SUFFIX, "[PREFIX]", PREFIX)),
)


def find_layout(tokenizer: Tokenizer) -> Layout:
    """Return the first layout whose tokens are all in the tokenizer.

    Raises:
        RequestError: the tokenizer has the tokens of no layout.
    """
    for layout in LAYOUTS:
        names = [part for part in layout.parts if isinstance(part, str)]
        if all(tokenizer.token_id(name) is not None for name in names):
            return layout
    raise RequestError(
        "this model has no tokens for filling in text before a suffix (such as <|fim_prefix|>); leave suffix out",
        param="suffix",
        code="unsupported_parameter",
    )


def lay_out(layout: Layout, tokenizer: Tokenizer, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
    """Return the prompt that asks for the text between prefix and suffix.

    Args:
        prefix, suffix: token ids, without the tokens that the tokenizer adds at the start of a text (such as
            BOS). `lay_out` adds these tokens at the start of the prompt.
    """
    between = {PREFIX: list(prefix), SUFFIX: list(suffix)}
    prompt = tokenizer.encode("")
    for part in layout.parts:
        prompt += between[part] if isinstance(part, int) else _ids(tokenizer, (part,))
    return prompt


def end_ids(layout: Layout, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of the tokens that end the filled-in text."""
    return tuple(_ids(tokenizer, layout.ends))


def _ids(tokenizer: Tokenizer, names: Sequence[str]) -> list[int]:
    return [token_id for name in names if (token_id := tokenizer.token_id(name)) is not None]
