"""Reads the tokens that a request names for their log probabilities (vLLM's `logprob_token_ids`)."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import MAX_LOGPROB_TOKEN_IDS

from .prompt_fit import check_token_ids


def given_ids(token_ids: Sequence[int] | None, info: EngineInfo, *, has_logprobs: bool) -> tuple[int, ...]:
    """Return the tokens that `logprob_token_ids` names, each once.

    Args:
        token_ids: value of the field; None or empty: the request names none.
        has_logprobs: whether the request asks for log probabilities.

    Raises:
        RequestError: the request asks for no log probabilities, names too many tokens, or names a token that
            is not in the vocabulary.
    """
    if token_ids and not has_logprobs:
        raise RequestError(
            "logprob_token_ids is given; it needs logprobs to be set", param="logprob_token_ids"
        )
    return tuple(dict.fromkeys(checked_ids("logprob_token_ids", token_ids, info)))


def is_constrained(constrained_logprobs: bool | None, *, has_logprobs: bool) -> bool:
    """Return whether the grammar, penalties and biases apply to the log probabilities of generated tokens.

    Args:
        constrained_logprobs: value of the field.
        has_logprobs: whether the request asks for log probabilities of generated tokens.

    Raises:
        RequestError: the field is true, and the request asks for no such log probabilities.
    """
    if constrained_logprobs and not has_logprobs:
        raise RequestError(
            "constrained_logprobs is true; it needs logprobs to be set: those of a prompt's tokens are always the "
            "model's own",
            param="constrained_logprobs",
        )
    return bool(constrained_logprobs)


def checked_ids(param: str, token_ids: Sequence[int] | None, info: EngineInfo) -> tuple[int, ...]:
    """Return the named tokens, unchanged.

    Args:
        param: name of the list, for errors.
        token_ids: the list; None: empty.

    Raises:
        RequestError: there are too many tokens, or a token is not in the vocabulary.
    """
    found = tuple(token_ids or ())
    if len(found) > MAX_LOGPROB_TOKEN_IDS:
        raise RequestError(
            f"{param} has {len(found)} ids; at most {MAX_LOGPROB_TOKEN_IDS} are allowed", param=param
        )
    check_token_ids(param, found, info)
    return found
