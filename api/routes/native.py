"""SGLang's native routes: POST /generate and GET /get_model_info."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.http.body import decode_native, report_ignored
from llmfw.api.native.service import NativeService
from llmfw.api.schemas.native import GenerateReply, GenerateRequest, ModelInfo
from llmfw.api.text.generation import Generator
from llmfw.core.base.control import GetPolicy, PolicyInfo
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.operation import describe

from .models import root_of
from .respond import event_stream, json_response, read_json, while_connected


def native_routes(
    native: NativeService, generator: Generator, client: EngineClient, *, strict: bool = False
) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/generate` and `/get_model_info`.

    Args:
        client: the generator's engine client.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/generate",
        status_code=200,
        opt=describe(
            "Generate text from a prompt (SGLang's API).",
            body=GenerateRequest,
            reply=GenerateReply,
            chunk=GenerateReply,
        ),
    )
    async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_native(await read_json(request))
        headers = report_ignored(ignored, strict)

        async def frames() -> AsyncGenerator[bytes, None]:
            return native.stream(await native.start(body))

        async def reply() -> GenerateReply | list[GenerateReply]:
            return await native.reply(await native.start(body))

        if body.stream:
            return await event_stream(request.receive, frames(), headers)
        return json_response(await while_connected(request.receive, reply()), headers)

    @get(
        ["/get_model_info", "/model_info"],
        opt=describe("Return the model and engine settings.", reply=ModelInfo),
    )
    async def get_model_info() -> ASGIApp:
        info = generator.info
        root = root_of(info.model, generator.served_name)
        return json_response(
            ModelInfo(
                model_path=root,
                tokenizer_path=root,
                is_generation=info.task == "generate",
                served_model_name=generator.served_name,
                max_model_len=info.max_model_len,
                max_total_num_tokens=info.max_total_tokens,
                max_running_requests=info.max_running_requests,
                vocab_size=info.vocab_size,
                dtype=info.dtype,
                quantization=info.quantization,
                kv_cache_dtype=info.kv_cache_dtype,
                device=info.device,
                attention_backend=info.attention,
                schedule_policy=await _policy_of(client),
                weight_version=info.weight_version,
                sampling_defaults=generator.sampling_defaults,
            )
        )

    return [generate, get_model_info]


async def _policy_of(client: EngineClient) -> str:
    """Return the name of the current scheduling policy, which an administrator may have changed."""
    answer = await client.control(GetPolicy())
    assert isinstance(answer, PolicyInfo)
    return answer.name
