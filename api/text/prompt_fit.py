"""Checks that prompts and token ids fit the model, and sets `max_tokens` to what the context leaves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.base.media import MediaSpan
from llmfw.core.base.request import SamplingParams

MAX_MEDIA_BYTES = 2**29
"""Maximum size of the images of all choices of a request, as the model reads them, in bytes."""

MAX_SETTINGS_BYTES = 2**24
"""Maximum size of the settings of all choices of a request, in bytes."""


def fitted_sampling(
    sampling: SamplingParams, prompt: Sequence[int], info: EngineInfo, max_tokens_param: str
) -> SamplingParams:
    """Return the sampling parameters of a prompt, with `max_tokens` set.

    Args:
        max_tokens_param: request field that set `max_tokens`, for errors.

    Raises:
        RequestError: the prompt is empty, or prompt and output do not fit into the context.
    """
    if not prompt:
        raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
    check_token_ids("prompt", prompt, info)
    limit, used = info.max_model_len, len(prompt)
    if used >= limit:
        raise ContextLengthError(
            f"this model's maximum context length is {limit} tokens; the prompt alone has {used}"
        )
    if sampling.max_tokens is None:
        return msgspec.structs.replace(sampling, max_tokens=limit - used)
    if used + sampling.max_tokens > limit:
        raise ContextLengthError(
            f"this model's maximum context length is {limit} tokens; the prompt has {used} and "
            f"{max_tokens_param} is {sampling.max_tokens}: together {used + sampling.max_tokens}",
            param=max_tokens_param,
        )
    return sampling


def check_token_ids(param: str, token_ids: Sequence[int], info: EngineInfo) -> None:
    """Raise RequestError if a token id is not in the vocabulary."""
    size = info.vocab_size
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < size):
        wrong = next(token for token in token_ids if not 0 <= token < size)
        raise RequestError(
            f"{param} has the token id {wrong}; this model's go from 0 to {size - 1}", param=param
        )


def check_media(media: Sequence[Sequence[MediaSpan]], n: int) -> None:
    """Raise RequestError if the images of all choices are too large to send. Each choice carries its own.

    Args:
        media: images of each prompt.
        n: choices per prompt.
    """
    if not any(media):
        return
    size = n * sum(len(array.data) for spans in media for span in spans for array in span.tensors.values())
    if size > MAX_MEDIA_BYTES:
        raise RequestError(
            f"the images of all choices have {size} bytes as the model reads them; at most {MAX_MEDIA_BYTES} are possible: send "
            "fewer or smaller images" + (", or a smaller n" if n > 1 else ""),
            param="messages" if n == 1 else "n",
        )


def check_settings(settings: Sequence[tuple[SamplingParams, msgspec.Struct]], n: int) -> None:
    """Raise RequestError if the settings of all choices are too large to send. Each choice carries its own.

    Args:
        settings: settings of each prompt. Settings that prompts share are measured once.
        n: choices per prompt.
    """
    num_choices = n * len(settings)
    if num_choices <= 1:
        return
    sizes: dict[tuple[int, int], int] = {}
    total = 0
    for pair in settings:
        key = id(pair[0]), id(pair[1])
        if key not in sizes:
            sizes[key] = len(msgspec.msgpack.encode(pair))
        total += n * sizes[key]
    if total > MAX_SETTINGS_BYTES:
        raise RequestError(
            f"the settings of {num_choices} choices (logit_bias, stop, the grammar) are more than "
            f"{MAX_SETTINGS_BYTES} bytes together; send several requests",
            param="n",
        )
