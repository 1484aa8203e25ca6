"""Embeds texts through the server's own route, with errors that name this request's fields."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar import Request
from litestar.response.base import ASGIResponse

from llmfw.core import RequestError, ServerAPI

from .replies import Usage

PATH = "/v1/embeddings"
MAX_TEXTS = 2048

HTTPRequest = Request[Any, Any, Any]


async def embed(
    api: ServerAPI, request: HTTPRequest, texts: Sequence[str], names: Sequence[str], **fields: Any
) -> tuple[list[bytes], Usage]:
    """Return the vector of each text, as little-endian float32 values, and the token counts.

    Args:
        request: the handler's request, whose body has been read.
        names: name of each text in error messages.
        fields: more fields of the embedding request; those that are None are left out.

    Raises:
        RequestError: a text or a field is wrong.
    """
    if len(texts) > MAX_TEXTS:
        raise RequestError(
            f"the request holds {len(texts)} texts; at most {MAX_TEXTS} are allowed", param=names[-1]
        )
    body = {"input": texts, "encoding_format": "base64", **without_none(fields)}
    try:
        reply = await api.while_connected(request, api.call(PATH, body))
    except RequestError as error:
        raise renamed(error, names) from error
    usage = reply["usage"]
    vectors = [base64.b64decode(each["embedding"]) for each in reply["data"]]
    return vectors, Usage(usage["prompt_tokens"], usage["total_tokens"])


def floats_of(vector: bytes) -> list[float]:
    """Return the numbers of a vector of little-endian float32 values."""
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def refuse_given(body: msgspec.Struct, reasons: Mapping[str, str]) -> None:
    """Raise RequestError if a body has a field that would change the answer.

    Args:
        reasons: field → why it cannot be honored, and what to do.
    """
    for name, reason in reasons.items():
        value = getattr(body, name)
        if value is not None:
            shown = msgspec.json.encode(value).decode()[:100]
            raise RequestError(
                f"{name} is {shown}, which is not supported: {reason}",
                param=name,
                code="unsupported_parameter",
            )


def json_reply(body: msgspec.Struct, headers: dict[str, str]) -> ASGIResponse:
    """Return a JSON reply with status 200."""
    return ASGIResponse(body=msgspec.json.encode(body), media_type="application/json", headers=headers)


def renamed(error: RequestError, names: Sequence[str], inner: str = "input[{}]") -> RequestError:
    """Return the error with its text named as in the request.

    Args:
        names: name of each text in the request.
        inner: pattern of a text's name in the given error; `{}` stands for the index.
    """
    for index, name in enumerate(names):
        if error.param is not None and error.param == inner.format(index):
            error.args = (str(error).replace(error.param, name, 1),)
            error.param = name
            break
    return error
