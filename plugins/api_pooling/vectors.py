"""POST /pooling (vLLM's) and POST /v2/embed (Cohere's): vectors in other forms than OpenAI's."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from typing import Any

from litestar import Controller, Request, post
from litestar.datastructures import State
from litestar.types import ASGIApp

from llmfw.core import EngineClient, RequestError, ServerAPI, describe

from .bodies import CohereBody, PoolingBody
from .embedding import PATH, embed, floats_of, json_reply, refuse_given, without_none
from .replies import (
    APIVersion,
    CohereReply,
    Meta,
    Pooled,
    PoolingReply,
    Tokens,
    TypedVectors,
    Usage,
)

_ALWAYS = "the model's files say how vectors are pooled and whether they are normalized"
POOLING_REFUSED = {
    "data": "this server has no plugins of vLLM that read it; give input or messages",
    "chat_template": "--chat-template chooses it for the server",
    "embed_dtype": "vectors are of float32",
    "endianness": "vectors in base64 are little-endian",
    **dict.fromkeys(("normalize", "softmax", "activation", "use_activation"), _ALWAYS),
    "truncate_prompt_tokens": "an input that is too long is refused, never cut",
}
FORWARDED = tuple(name for name in PoolingBody.__struct_fields__ if name not in {"task", *POOLING_REFUSED})
COHERE_REFUSED = {
    "images": "this server reads text only",
    "max_tokens": "a text that is too long is refused, never cut",
}


class Vectors(Controller):
    """Routes that return vectors."""

    @post(
        "/pooling",
        status_code=200,
        opt=describe(
            "Create embeddings, as vLLM's /pooling does.", scope="embed", body=PoolingBody, reply=PoolingReply
        ),
    )
    async def pool(self, request: Request[Any, Any, Any], state: State) -> ASGIApp:
        """Embed texts or a chat."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, PoolingBody)
        headers = api.report(ignored)
        if body.task not in (None, "embed"):
            raise RequestError(
                f"task is {body.task!r:.100}; this server computes one vector for each text: task must be 'embed', since "
                "others need a classifier or a vector for each token",
                param="task",
                code="unsupported_parameter",
            )
        refuse_given(body, POOLING_REFUSED)
        inner = without_none({name: getattr(body, name) for name in FORWARDED})
        reply = await api.while_connected(request, api.call(PATH, inner))
        return json_reply(
            PoolingReply(
                id=f"pool-{uuid.uuid4().hex}",
                created=int(time.time()),
                model=reply["model"],
                data=[Pooled(index=each["index"], data=each["embedding"]) for each in reply["data"]],
                usage=Usage(**reply["usage"]),
            ),
            headers,
        )

    @post(
        "/v2/embed",
        status_code=200,
        opt=describe("Create embeddings (Cohere's API).", scope="embed", body=CohereBody, reply=CohereReply),
    )
    async def embed(self, request: Request[Any, Any, Any], state: State) -> ASGIApp:
        """Embed texts, and return the vectors in each of the requested forms."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, CohereBody)
        headers = api.report([*ignored, *_without_effect(body, state["client"])])
        refuse_given(body, COHERE_REFUSED)
        kinds = list(dict.fromkeys(body.embedding_types or ["float"]))
        for kind in kinds:
            if kind not in FORMS:
                raise RequestError(
                    f"embedding_types has {kind!r:.100}; this server has {', '.join(FORMS)}",
                    param="embedding_types",
                )
        texts, names = _texts_of(body)
        try:
            vectors, usage = await embed(
                api, request, texts, names, model=body.model, dimensions=body.output_dimension
            )
        except RequestError as error:
            if error.param == "dimensions":
                error.args = (str(error).replace("dimensions", "output_dimension", 1),)
                error.param = "output_dimension"
            raise
        forms = {FIELDS.get(kind, kind): [FORMS[kind](vector) for vector in vectors] for kind in kinds}
        meta = Meta(APIVersion(), Tokens(usage.prompt_tokens))
        reply = CohereReply(
            id=f"embd-{uuid.uuid4().hex}", embeddings=TypedVectors(**forms), texts=texts, meta=meta
        )
        return json_reply(reply, headers)


def _without_effect(body: CohereBody, client: EngineClient) -> list[str]:
    """Return the names of given fields that have no effect.

    Raises:
        RequestError: such a field would change the vectors.
    """
    if body.truncate not in (None, "NONE", "START", "END"):
        raise RequestError(
            f"truncate is {body.truncate!r:.100}; it must be NONE, START or END", param="truncate"
        )
    names = ["truncate"] if body.truncate in ("START", "END") else []
    if body.input_type is None:
        return names
    if prompts := client.info.prompt_names:
        raise RequestError(
            f"input_type is {body.input_type!r:.100}; this model has prompts ({', '.join(prompts)}), and this server adds none: "
            "write the prompt into the texts, and leave input_type out",
            param="input_type",
            code="unsupported_parameter",
        )
    return [*names, "input_type"]


def _texts_of(body: CohereBody) -> tuple[list[str], list[str]]:
    """Return the texts of a request, and their names in errors."""
    if (body.texts is None) == (body.inputs is None):
        problem = "both missing; one of them is needed" if body.texts is None else "both given; give one"
        raise RequestError(f"texts and inputs are {problem}", param="texts")
    if body.texts is not None:
        texts, name = body.texts, "texts"
    else:
        texts, name = [_text_of(given, index) for index, given in enumerate(body.inputs or [])], "inputs"
    if not texts:
        raise RequestError(f"{name} is an empty list; at least one is needed", param=name)
    return texts, [f"{name}[{index}]" for index in range(len(texts))]


def _text_of(given: dict[str, Any], index: int) -> str:
    """Return the text of an item of `inputs`, whose content is one text part."""
    content = given.get("content")
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise RequestError(
            f"inputs[{index}].content must be a list of one part of type text", param=f"inputs[{index}]"
        )
    return str(part["text"])


def _bits(vector: bytes, offset: int) -> list[int]:
    """Return one bit per number (0: negative, 1: any other), packed into bytes from the highest bit down.

    Args:
        offset: number to subtract from each byte.
    """
    numbers = floats_of(vector)
    if len(numbers) % 8:
        raise RequestError(
            f"the vectors have {len(numbers)} dimensions; binary ones need a multiple of 8",
            param="embedding_types",
        )
    bits = "".join("1" if number >= 0 else "0" for number in numbers)
    return [int(bits[i : i + 8], 2) - offset for i in range(0, len(bits), 8)]


FORMS: dict[str, Callable[[bytes], Any]] = {
    "float": floats_of,
    "base64": lambda vector: base64.b64encode(vector).decode(),
    "binary": lambda vector: _bits(vector, 128),
    "ubinary": lambda vector: _bits(vector, 0),
}
"""Cohere's embedding type → function that converts a vector to this type.

int8 and uint8 are not supported: they need ranges of values, which no model's files contain.
"""
FIELDS = {"float": "floats"}
