"""Prompts that ask for the text between a prefix and a suffix, as models trained for it want them.

Which layout a model knows is read from its tokenizer: it is the first whose tokens are all there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.tokenizer import Tokenizer

PREFIX, SUFFIX = 0, 1


class Layout(msgspec.Struct, frozen=True):
    """How a model wants to be asked.

    Attributes:
        parts: tokens by name, and where prefix and suffix go between them.
        ends: tokens by name that end what the model fills in, beside its end-of-sequence tokens.
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
    """Return the layout that a tokenizer has the tokens of.

    Raises:
        RequestError: it has none.
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
        prefix, suffix: token ids, without those that the tokenizer puts before a text; they come before the layout's.
    """
    between = {PREFIX: list(prefix), SUFFIX: list(suffix)}
    prompt = tokenizer.encode("")
    for part in layout.parts:
        prompt += between[part] if isinstance(part, int) else _ids(tokenizer, (part,))
    return prompt


def end_ids(layout: Layout, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that end what is filled in."""
    return tuple(_ids(tokenizer, layout.ends))


def _ids(tokenizer: Tokenizer, names: Sequence[str]) -> list[int]:
    return [token_id for name in names if (token_id := tokenizer.token_id(name)) is not None]
