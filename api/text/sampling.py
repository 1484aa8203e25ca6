"""Converts the fields of a request body to SamplingParams, which checks most of the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import SamplingParams

from .aliases import REPETITION_PENALTY, field_given

MAX_STOPS, MAX_STOP_LENGTH = 256, 256
"""Maximum number of stop strings of a request, and of characters of one stop string.

Every token's text is searched for all of them.
"""

MAX_BIASES = 16_384
"""Maximum number of entries of logit_bias, which is sent with each choice."""

_SAME_NAME = (
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "ignore_eos",
    "seed",
)


def to_sampling(
    body: msgspec.Struct,
    max_tokens: int | None,
    renamed: dict[str, str] | None = None,
    defaults: Mapping[str, float] | None = None,
    max_biases: int = MAX_BIASES,
) -> SamplingParams:
    """Return the sampling parameters of a request body. Fields that the client left unset get their defaults.

    Args:
        body: request body whose fields are named as in SamplingParams or in `renamed`.
        max_tokens: value of `max_tokens`, whose field has a different name in each API.
        renamed: SamplingParams field → request field, if they differ; errors name the request field.
        defaults: SamplingParams field → default that replaces SamplingParams' own.
        max_biases: maximum number of entries of logit_bias.

    Raises:
        RequestError: a value is out of range, a key of logit_bias is not a token id, or two names of a field
            have different values.
    """
    penalty, _ = field_given(body, REPETITION_PENALTY)
    renamed = {"repetition_penalty": penalty, **(renamed or {})}
    values: dict[str, Any] = {name: getattr(body, renamed.get(name, name)) for name in _SAME_NAME}
    values["max_tokens"] = max_tokens
    values["logit_bias"] = _logit_bias(getattr(body, "logit_bias", None), max_biases)
    stop = getattr(body, "stop", None)
    values["stop"] = _stops(stop)
    values["stop_token_ids"] = tuple(getattr(body, "stop_token_ids", None) or ())
    try:
        given = {name: value for name, value in values.items() if value is not None}
        return SamplingParams(**{**(defaults or {}), **given})
    except RequestError as error:
        raise _renamed(error, renamed, isinstance(stop, str)) from error


def check_sizes(sampling: SamplingParams, max_biases: int) -> None:
    """Raise RequestError if sampling parameters have more stop strings or biases than a request may have."""
    _stops(list(sampling.stop))
    _check_biases(len(sampling.logit_bias), max_biases)


def with_own_seed(sampling: SamplingParams, i: int) -> SamplingParams:
    """Return the parameters of a prompt's i-th choice. If a seed is set, each choice gets its own seed."""
    if i == 0 or sampling.seed is None:
        return sampling
    return msgspec.structs.replace(sampling, seed=(sampling.seed + i + 2**63) % 2**64 - 2**63)


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given or ())
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed", param="stop")
    for i, text in enumerate(stops):
        if len(text) > MAX_STOP_LENGTH:
            name = "stop" if isinstance(given, str) else f"stop[{i}]"
            raise RequestError(
                f"{name} has {len(text)} characters; at most {MAX_STOP_LENGTH} are allowed", param=name
            )
    return stops


def _logit_bias(given: dict[str, float] | None, most: int) -> dict[int, float]:
    """Return the biases by token id. In the request, the ids are strings, because they are JSON keys."""
    found: dict[int, float] = {}
    _check_biases(len(given or ()), most)
    for key, bias in (given or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise RequestError(
                f"logit_bias.{key[:100]}: {key[:100]!r} is not a token id; the keys of logit_bias are",
                param=f"logit_bias.{key}",
            )
        if int(key) in found:
            raise RequestError(
                f"logit_bias.{key}: {key!r} is token {int(key)}, which another key names, too; give it once",
                param=f"logit_bias.{key}",
            )
        found[int(key)] = bias
    return found


def _check_biases(count: int, most: int) -> None:
    if count > most:
        raise RequestError(f"logit_bias has {count} entries; at most {most} are allowed", param="logit_bias")


def _renamed(error: RequestError, renamed: dict[str, str], one_stop: bool) -> RequestError:
    name = error.param or ""
    theirs = "stop" if one_stop and name == "stop[0]" else renamed.get(name, name)
    return RequestError(str(error).replace(name, theirs, 1), param=theirs, code=error.code)
