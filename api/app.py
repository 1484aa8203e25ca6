"""The HTTP application: services, routes, error handling, request ids and the API key around all of it.

Knows nothing of processes and sockets; its engine client is started and closed by whoever made it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.types import ASGIApp, ControllerRouterHandler

from llmfw.core.chat_template import ChatTemplate
from llmfw.core.client.client import EngineClient
from llmfw.core.config import ServerConfig
from llmfw.core.errors import PartError
from llmfw.core.parsers import ReasoningParser, ToolParser
from llmfw.core.storage import ResponseStore
from llmfw.core.tokenizer import Tokenizer

from .anthropic.service import MessageService
from .chat.service import ChatService
from .completions.service import CompletionService
from .embeddings import EmbeddingService
from .errors import EXCEPTION_HANDLERS
from .fingerprint import system_fingerprint
from .generation import Generator
from .grammar_check import GrammarChecker
from .middleware import ApiKey, RequestId
from .native.service import NativeService
from .responses.memory import ResponseMemory
from .responses.service import ResponseService
from .routes.anthropic import anthropic_routes
from .routes.chat import chat_routes
from .routes.completions import completion_routes
from .routes.embeddings import embedding_routes
from .routes.health import PATH as HEALTH_PATH
from .routes.health import health_routes
from .routes.models import model_routes
from .routes.native import native_routes
from .routes.openapi import openapi_routes
from .routes.responses import response_routes
from .routes.tokenize import tokenize_routes
from .tokenization import TokenizationService

MAX_BODY_BYTES = 64 * 2**20
SECONDS_A_DAY = 24 * 3600


def create_app(
    client: EngineClient,
    tokenizer: Tokenizer,
    chat_template: ChatTemplate,
    config: ServerConfig,
    *,
    response_store: ResponseStore,
    reasoning_parser: type[ReasoningParser] | None = None,
    tool_parser: type[ToolParser] | None = None,
    json_tool_parser: type[ToolParser] | None = None,
    grammar_checker: GrammarChecker | None = None,
    sampling_defaults: Mapping[str, float] | None = None,
    plugin_routes: Sequence[tuple[str, str]] = (),
) -> ASGIApp:
    """Return the application.

    Args:
        client: started.
        response_store: is closed with the application.
        reasoning_parser, tool_parser: classes that fit the model, or None.
        json_tool_parser: reads tool calls that are a bare JSON array, where a grammar holds the model to them.
        grammar_checker: for structured output; None: there is none.
        sampling_defaults: the model's own, by SamplingParams' names.
        plugin_routes: plugin and import path "package.module:name" of Litestar handlers, routers or controllers.
            They find `client`, `generator`, `chat`, `completions`, `responses` and `config` in the application's
            state.

    Raises:
        PartError: a plugin's route cannot be imported.
    """
    generator = Generator(client, tokenizer, config.served_model_name, grammar_checker, sampling_defaults)
    fingerprint = system_fingerprint(client.info, (chat_template.source, reasoning_parser, tool_parser))
    chat = ChatService(
        generator,
        chat_template,
        reasoning_parser=reasoning_parser,
        tool_parser=tool_parser,
        json_tool_parser=json_tool_parser,
        fingerprint=fingerprint,
        reasoning_field=config.reasoning_field,
    )
    completions = CompletionService(generator, fingerprint)
    memory = ResponseMemory(response_store, config.response_ttl_days * SECONDS_A_DAY)
    responses = ResponseService(chat, memory, config.served_model_name)
    handlers = [
        *chat_routes(chat, strict=config.strict_params),
        *anthropic_routes(MessageService(chat, generator), strict=config.strict_params),
        *completion_routes(completions, strict=config.strict_params),
        *embedding_routes(EmbeddingService(generator), strict=config.strict_params),
        *response_routes(responses, strict=config.strict_params),
        *native_routes(NativeService(generator), generator, strict=config.strict_params),
        *tokenize_routes(TokenizationService(generator, chat), strict=config.strict_params),
        *model_routes(generator),
        *health_routes(client),
        *openapi_routes(needs_key=config.api_key is not None),
        *(_import_route(plugin, path) for plugin, path in plugin_routes),
    ]
    state = {
        "client": client,
        "generator": generator,
        "chat": chat,
        "completions": completions,
        "responses": responses,
        "config": config,
    }
    return _guarded(_litestar(handlers, state, responses), config.api_key)


def _litestar(
    handlers: Sequence[ControllerRouterHandler], state: dict[str, Any], responses: ResponseService
) -> Litestar:
    return Litestar(
        handlers,
        on_startup=[responses.start],
        on_shutdown=[responses.close],
        exception_handlers=EXCEPTION_HANDLERS,
        state=State(state),
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=None,
        logging_config=None,
    )


def _guarded(app: ASGIApp, api_key: str | None) -> ASGIApp:
    """Put around an application what holds for every request."""
    if api_key is not None:
        app = ApiKey(app, api_key, {HEALTH_PATH})
    return RequestId(app)


def _import_route(plugin: str, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise PartError(
            f"route {path!r} of plugin {plugin!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
