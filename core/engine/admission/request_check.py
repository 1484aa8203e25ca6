"""Checks whether an engine can serve a request, using only the engine's fixed properties (`EngineInfo`)."""

from __future__ import annotations

from collections.abc import Collection

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.base.request import MAX_LOGPROB_TOKEN_IDS, Request, Thinking


def check_request(request: Request, info: EngineInfo) -> None:
    """Raise RequestError, naming the parameter, if the engine cannot serve a request."""
    _check_length(request, info.max_model_len)
    sampling, thinking = request.sampling, request.thinking
    for param, token_ids in (
        ("prompt", request.prompt),
        ("output", request.output),
        ("logit_bias", sampling.logit_bias),
        ("stop_token_ids", sampling.stop_token_ids),
        ("allowed_token_ids", sampling.allowed_token_ids),
        ("bad_words", [token_id for word in sampling.bad_words for token_id in word]),
        ("logprob_token_ids", request.logprob_token_ids),
        ("prompt_logprob_token_ids", request.prompt_logprob_token_ids),
        ("eos_token_ids", request.eos_token_ids),
        ("thinking.begin", thinking.begin if thinking else ()),
        ("thinking.end", thinking.end if thinking else ()),
        ("thinking.space", thinking.space if thinking else ()),
    ):
        if token_ids:  # most are empty, and need no call
            _check_token_ids(param, token_ids, info.vocab_size)
    _check_count("logprobs", request.logprobs, info.vocab_size)
    _check_count("prompt_logprobs", request.prompt_logprobs, info.vocab_size)
    _check_start(request)
    if request.output:
        _check_output(request, info.max_model_len)
    _check_given("logprob_token_ids", request.logprob_token_ids, "logprobs", request.logprobs)
    _check_given(
        "prompt_logprob_token_ids",
        request.prompt_logprob_token_ids,
        "prompt_logprobs",
        request.prompt_logprobs,
    )
    if request.grammar is not None and not request.eos_token_ids:
        raise RequestError(
            "eos_token_ids is empty; an output with a grammar needs a token to end with",
            param="eos_token_ids",
        )
    if thinking is not None:
        _check_thinking(thinking)
    if sampling.allowed_token_ids or sampling.bad_words:
        _check_some_token(request, info.vocab_size)
    elif sampling.min_tokens and len({*request.eos_token_ids, *sampling.stop_token_ids}) >= info.vocab_size:
        raise RequestError(
            f"min_tokens is {sampling.min_tokens}, and every token ends the output, so none may come first; name fewer "
            "stop_token_ids",
            param="min_tokens",
        )


def _check_start(request: Request) -> None:
    start, size = request.prompt_logprobs_start, len(request.prompt)
    if start == 1:
        return
    if request.prompt_logprobs is None:
        raise RequestError(
            f"prompt_logprobs_start is {start}, but prompt_logprobs is not set: set it, or leave out the start",
            param="prompt_logprobs_start",
        )
    if not 1 <= start < size:
        raise RequestError(
            f"prompt_logprobs_start is {start}; it must be the index of a prompt token but the first: 1 to {size - 1}",
            param="prompt_logprobs_start",
        )


def _check_length(request: Request, limit: int) -> None:
    if not request.prompt:
        raise RequestError("the prompt is empty; at least one token is needed", param="prompt")
    size = len(request.prompt)
    if size >= limit:
        raise ContextLengthError(
            f"the prompt has {size} tokens; the longest sequence is {limit}: send a shorter prompt",
            param="prompt",
        )
    asked = request.sampling.max_tokens or 1
    if size + asked > limit:
        raise ContextLengthError(
            f"the prompt's {size} tokens and max_tokens {asked} make {size + asked}; the longest sequence is {limit}: "
            "send a shorter prompt, or ask for fewer tokens",
            param="max_tokens",
        )


def _check_output(request: Request, limit: int) -> None:
    size, room = len(request.output), limit - len(request.prompt)
    most = room if request.sampling.max_tokens is None else request.sampling.max_tokens
    if size >= most:
        raise RequestError(
            f"output has {size} tokens already, and may have at most {most}; there is nothing to continue",
            param="output",
        )
    if request.prompt_logprobs is not None:
        raise RequestError(
            f"prompt_logprobs is {request.prompt_logprobs}, and output has {size} tokens; the first event, which has the log "
            "probabilities, comes before them: leave out one of both",
            param="prompt_logprobs",
        )


def _check_token_ids(param: str, token_ids: Collection[int], vocab_size: int) -> None:
    if not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        wrong = next(token for token in token_ids if not 0 <= token < vocab_size)
        raise RequestError(f"{param} holds token id {wrong}; they go from 0 to {vocab_size - 1}", param=param)


def _check_count(param: str, count: int | None, vocab_size: int) -> None:
    if count is not None and not 0 <= count <= vocab_size:
        raise RequestError(f"{param} is {count}; it must be 0 to {vocab_size}", param=param)


def _check_given(param: str, token_ids: Collection[int], switch: str, count: int | None) -> None:
    """Raise RequestError if there are too many ids, or if no log probabilities are requested.

    Args:
        switch: the parameter that requests log probabilities.
        count: its value.
    """
    if token_ids and count is None:
        raise RequestError(f"{param} has {len(token_ids)} ids, and {switch} is not set; set it", param=param)
    if len(token_ids) > MAX_LOGPROB_TOKEN_IDS:
        raise RequestError(
            f"{param} has {len(token_ids)} ids; at most {MAX_LOGPROB_TOKEN_IDS} are allowed", param=param
        )


def _check_some_token(request: Request, vocab_size: int) -> None:
    """Raise RequestError if allowed tokens and bad words may leave no token to sample."""
    sampling = request.sampling
    param = "allowed_token_ids" if sampling.allowed_token_ids else "bad_words"
    others = {
        "a grammar": request.grammar is not None,
        "a thinking budget": request.thinking is not None and request.thinking.budget is not None,
        "bad_words": param == "allowed_token_ids" and bool(sampling.bad_words),
    }
    if found := [name for name, is_there in others.items() if is_there]:
        raise RequestError(
            f"{param} is given together with {found[0]}, and both together may leave no token; leave one of them out",
            param=param,
        )
    if any(not word for word in sampling.bad_words):
        raise RequestError("bad_words has a word without tokens; give words of at least one", param=param)
    ends = {*request.eos_token_ids, *sampling.stop_token_ids} if sampling.min_tokens else set()
    if sampling.allowed_token_ids:
        is_left = bool(set(sampling.allowed_token_ids) - ends)
    else:
        is_left = len({word[-1] for word in sampling.bad_words} | ends) < vocab_size
    if not is_left:
        raise RequestError(
            f"{param} leaves no token to sample, counting ends that min_tokens ({sampling.min_tokens}) forbids; "
            "allow another one",
            param=param,
        )


def _check_thinking(thinking: Thinking) -> None:
    if not thinking.end:
        raise RequestError("thinking.end is empty; at least one token is needed", param="thinking.end")
    if thinking.budget is not None and thinking.budget < 0:
        raise RequestError(
            f"thinking.budget is {thinking.budget}; it must be 0 or more", param="thinking.budget"
        )
