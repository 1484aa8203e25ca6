"""Keeps the token that takes no position in a model, such as RoBERTa's padding token, out of sequences.

Positions after such a token would depend on the number of these tokens before, which no step knows.
"""

from __future__ import annotations

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Request


def end_at_uncounted(request: Request, uncounted_token: int | None) -> Request:
    """Return a request whose output ends with the uncounted token, if the model generates it.

    Args:
        uncounted_token: id of the token that takes no position in the model; None: there is none.

    Raises:
        RequestError: the prompt or the output so far has this token.
    """
    if uncounted_token is None:
        return request
    for param, token_ids in (("prompt", request.prompt), ("output", request.output)):
        if uncounted_token in token_ids:
            raise RequestError(
                f"{param} holds the model's padding token, {uncounted_token}, after which its positions are not known; "
                "leave it out",
                param=param,
            )
    sampling = request.sampling
    ends = tuple({*sampling.stop_token_ids, uncounted_token})
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(sampling, stop_token_ids=ends))
