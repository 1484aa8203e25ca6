"""Reads the prompts of a request to /generate, and the ids that the client gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

from llmfw.api.completions.prompts import MAX_PROMPTS
from llmfw.api.schemas.native import GenerateRequest, NativeSampling
from llmfw.api.text.generation import Generator
from llmfw.api.text.given_ids import checked_ids
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import RequestError

MAX_PROMPT_VALUES = 2**22
"""Maximum number of log probabilities of named tokens at the positions of a request's prompts.

As many as the 20 most likely tokens have in prompts of 200,000 tokens together. The engine
holds all values of a prompt until the whole prompt is computed.
"""


class Prompts(NamedTuple):
    """The prompts of a request.

    Attributes:
        token_ids: token ids of each prompt.
        is_list: whether the client sent a list of prompts.
    """

    token_ids: list[list[int]]
    is_list: bool


async def prompts_of(body: GenerateRequest, generator: Generator) -> Prompts:
    """Return the prompts of a request.

    Raises:
        RequestError: there is no prompt, there are prompts of two kinds, or there are too many prompts.
    """
    if body.text is not None and body.input_ids is not None:
        raise RequestError("text and input_ids are both given; give one", param="input_ids")
    given, param = (body.text, "text") if body.input_ids is None else (body.input_ids, "input_ids")
    if given is None:
        raise RequestError("text is missing; give text or input_ids", param="text")
    if isinstance(given, str):
        return Prompts([await generator.encode(given)], False)
    kinds = {type(each) for each in given}
    if kinds == {int}:
        return Prompts([cast("list[int]", given)], False)
    if len(kinds) != 1 or len(given) > MAX_PROMPTS:
        raise RequestError(
            f"{param} holds {len(given)} items; a list of prompts has 1 to {MAX_PROMPTS}, all of one kind",
            param=param,
        )
    if kinds == {str}:
        return Prompts(await generator.texts.encode_all(cast("list[str]", given), param), True)
    return Prompts(cast("list[list[int]]", given), True)


def sampling_of(body: GenerateRequest, prompts: Prompts) -> list[NativeSampling]:
    """Return the sampling parameters of each prompt.

    Raises:
        RequestError: there is a list for a single prompt, a list's length is not the number of prompts, or
            the items differ in `n`.
    """
    given = NativeSampling() if body.sampling_params is None else body.sampling_params
    if isinstance(given, NativeSampling):
        return [given] * len(prompts.token_ids)
    _check_list("sampling_params", given, prompts)
    for i, each in enumerate(given):
        if (each.n or 1) != (given[0].n or 1):
            raise RequestError(
                f"sampling_params[{i}].n is {each.n or 1}, and that of the first prompt is {given[0].n or 1}; all "
                "prompts of a request have the same number of choices",
                param=f"sampling_params[{i}].n",
            )
    return given


def given_ids_of(body: GenerateRequest, prompts: Prompts, info: EngineInfo) -> list[tuple[int, ...]]:
    """Return the tokens whose log probabilities the request asks for, for each prompt.

    Raises:
        RequestError: there are lists for a single prompt, or their number is not the number of prompts; a
            list is too long, or has a token that is not in the vocabulary; the prompts have too many
            positions; or `return_logprob` is not true.
    """
    param, given = "token_ids_logprob", body.token_ids_logprob or []
    if given and not body.return_logprob:
        raise RequestError(f"{param} is given; it needs return_logprob to be true", param=param)
    kinds = {type(each) for each in given}
    if len(kinds) > 1:
        raise RequestError(
            f"{param} has token ids and lists; give token ids, or one list of them for each prompt",
            param=param,
        )
    if list in kinds:
        if not prompts.is_list:
            raise RequestError(
                f"{param} has lists, and the prompt is a single one; send a list of token ids, such as [5]",
                param=param,
            )
        _check_list(param, given, prompts)
        lists = cast("list[list[int]]", given)
        found = [checked_ids(f"{param}[{i}]", each, info) for i, each in enumerate(lists)]
    else:
        found = [checked_ids(param, cast("list[int]", given), info)] * len(prompts.token_ids)
    if body.logprob_start_len is not None and body.logprob_start_len >= 0:
        _check_number_of_values(found, prompts)
    return found


def _check_number_of_values(given_ids: Sequence[tuple[int, ...]], prompts: Prompts) -> None:
    """Raise RequestError if the named tokens have too many log probabilities in all prompts together."""
    count = sum(len(ids) * len(each) for ids, each in zip(given_ids, prompts.token_ids, strict=True))
    if count > MAX_PROMPT_VALUES:
        raise RequestError(
            f"token_ids_logprob asks for {count} values of the prompts; at most {MAX_PROMPT_VALUES} are allowed: "
            "send fewer ids or fewer prompts, or leave logprob_start_len out",
            param="token_ids_logprob",
        )


def ids_of(body: GenerateRequest, prompts: Prompts, n: int) -> list[str] | None:
    """Return the client's ids of all choices, prompt-major; None if the client gives no ids.

    If one id stands for several choices or for a list of prompts, the id is the prefix of the choices' ids.

    Raises:
        RequestError: there is a list of ids for a single prompt, its length is not the number of prompts, or
            it has an id twice.
    """
    if body.rid is None:
        return None
    if isinstance(body.rid, str):
        count = n * len(prompts.token_ids)
        several = prompts.is_list or count > 1
        return [f"{body.rid}_{i}" for i in range(count)] if several else [body.rid]
    _check_list("rid", body.rid, prompts)
    twice = next((id for id, count in Counter(body.rid).items() if count > 1), None)
    if twice is not None:
        raise RequestError(
            f"rid has {twice!r} more than once; each prompt needs an id of its own", param="rid"
        )
    return body.rid if n == 1 else [f"{id}_{i}" for id in body.rid for i in range(n)]


def _check_list(param: str, items: Sequence[object], prompts: Prompts) -> None:
    """Raise RequestError unless the prompts are a list, and `items` has one item for each prompt."""
    if not prompts.is_list:
        raise RequestError(
            f"{param} is a list, and the prompt is a single one; send {param} without a list, or a list of prompts",
            param=param,
        )
    if len(items) != len(prompts.token_ids):
        raise RequestError(
            f"{param} has {len(items)} items for {len(prompts.token_ids)} prompts; it must have one for each",
            param=param,
        )
