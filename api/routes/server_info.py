"""GET /version (vLLM's), and GET /server_info and /get_server_info (SGLang's)."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.schemas.server_info import EngineState, ServerInfo, Version
from llmfw.api.text.generation import Generator
from llmfw.core.base.about import version
from llmfw.core.base.control import GetPolicy, PolicyInfo
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.operation import describe

from .models import root_of
from .respond import json_response


def server_info_routes(generator: Generator, client: EngineClient) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/version`, `/server_info` and `/get_server_info`.

    Args:
        client: the generator's engine client.
    """

    @get("/version", opt=describe("Return the version of the server.", reply=Version))
    async def show_version() -> ASGIApp:
        return json_response(Version(version()))

    @get(
        ["/server_info", "/get_server_info"],
        opt=describe("Return the server's settings, and what the engine has to do.", reply=ServerInfo),
    )
    async def server_info() -> ASGIApp:
        return json_response(await _server_info(generator, client))

    return [show_version, server_info]


async def _server_info(generator: Generator, client: EngineClient) -> ServerInfo:
    info, stats = generator.info, await client.stats()
    policy = await client.control(GetPolicy())
    assert isinstance(policy, PolicyInfo)
    root = root_of(info.model, generator.served_name)
    return ServerInfo(
        version=version(),
        model_path=root,
        tokenizer_path=root,
        served_model_name=generator.served_name,
        is_embedding=info.task == "embed",
        weight_version=info.weight_version,
        context_length=info.max_model_len,
        vocab_size=info.vocab_size,
        dtype=info.dtype,
        quantization=info.quantization,
        kv_cache_dtype=info.kv_cache_dtype,
        device=info.device,
        attention_backend=info.attention,
        schedule_policy=policy.name,
        max_running_requests=info.max_running_requests,
        max_total_num_tokens=info.max_total_tokens,
        internal_states=[
            EngineState(
                num_running_reqs=stats.num_running,
                num_waiting_reqs=stats.num_waiting,
                num_used_tokens=stats.num_used_tokens,
                num_cached_tokens=stats.num_cached_tokens,
            )
        ],
    )
