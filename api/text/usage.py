"""Token counts of a generation, as replies report them (`usage`)."""

from __future__ import annotations

from llmfw.api.schemas.common import CompletionTokensDetails, PromptTokensDetails, Usage

from .generation import Generation


def usage_of(generation: Generation, num_prompts: int = 1, *, scores_only: bool = False) -> Usage:
    """Return the token counts so far. A prompt with several choices counts once.

    Args:
        num_prompts: number of prompts. The choices are ordered by prompt, and all prompts have the same
            number of choices.
        scores_only: whether only the prompts' scores were requested, so that generated tokens do not count.
    """
    choices = generation.choices
    firsts = choices[:: len(choices) // num_prompts]
    prompt_tokens = cached_tokens = generated_tokens = reasoning_tokens = 0
    for choice in firsts:
        prompt_tokens += len(choice.request.prompt)
        cached_tokens += choice.text.num_cached_tokens
    for choice in choices:
        generated_tokens += len(choice.text.token_ids)
        reasoning_tokens += choice.text.num_reasoning_tokens
    completion_tokens = 0 if scores_only else generated_tokens
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens),
    )
