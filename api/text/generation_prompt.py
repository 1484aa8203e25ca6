"""One prompt of a generation, and the settings of its output."""

from __future__ import annotations

import msgspec

from llmfw.core.base.media import MediaSpan
from llmfw.core.base.request import GrammarSpec, SamplingParams, Thinking

from .choice import MakeText


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an output other than its sampling parameters. The fields are those of `Request`."""

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int = 1
    grammar: GrammarSpec | None = None
    thinking: Thinking | None = None
    constrained_logprobs: bool = False
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprob_token_ids: tuple[int, ...] = ()


class GenerationPrompt(msgspec.Struct, frozen=True):
    """One prompt of a generation, and how to continue it. Prompts may share settings.

    Attributes:
        token_ids: ids of the prompt's tokens.
        make_text: factory of the text streams of the prompt's choices.
        media: images in the prompt.
    """

    token_ids: list[int]
    sampling: SamplingParams
    make_text: MakeText
    output: Output
    media: tuple[MediaSpan, ...] = ()
