"""Builds the API process's components from the names in the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from llmfw.api.media.vision import ImagePrompts
from llmfw.api.text.generation_config import load_sampling_defaults
from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError, UnknownComponentError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.base.user_path import user_path
from llmfw.core.client.client import EngineClient
from llmfw.core.grammars.messages import Limits
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.parsers import ReasoningParser, ToolParser
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.media.prompter import ImagePrompter
from llmfw.core.model.files.small_files import check_files, read_text
from llmfw.core.model.tokenizer.tokenizer_check import check_fit
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.component_options import with_keywords
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.media_choice import media_processor_entry
from llmfw.core.plugin.registry import Registry

from .model_components import ModelComponents
from .option_checks import check_grammar_options, default_template, find_parser
from .request_fields import build_request_fields

ParserKind = tuple[str, type, tuple[Any, ...]]
"""A kind of parser: its name, its interface, and arguments with which any parser of the kind is built."""

REASONING: ParserKind = ("reasoning_parser", ReasoningParser, ())
TOOLS: ParserKind = ("tool_parser", ToolParser, ([],))

JSON_CALLS = "json_calls"
"""Tool parser for calls in the form of a bare JSON array, which a grammar can make any model write."""


def build_chat_template(
    name: str | None,
    registry: Registry,
    tokenizer: Tokenizer,
    options: Mapping[str, OptionValue] = {},
) -> ChatTemplate:
    """Build the chat template that a setting names.

    Args:
        name: name of a registered template, or path of a file with a Jinja template; None: the model's own.
        options: options of components, "kind.key" → value.

    Raises:
        ConfigError: there is no such template or file, the template is invalid, or an option is wrong.
    """
    source, entry_name, file = tokenizer.chat_template, default_template(registry), tokenizer.template_file
    if name is not None:
        try:
            entry_name = registry.find("chat_template", name).full_name
        except UnknownComponentError as error:
            source, file = _read_template(name, str(error)), name
    entry = registry.find("chat_template", entry_name)
    made: type[ChatTemplate] = guarded(entry.load(), ChatTemplate, registry.ledger.of(entry))
    given = entry.built_with(options)
    try:
        return entry.build(made, source, tokenizer.special_tokens, **given)
    except ConfigError as error:
        if not file or isinstance(error, ComponentError):
            raise
        raise ConfigError(f"{file}: {error}") from error


def load_model_components(model: EngineConfig, config: ServerConfig, registry: Registry) -> ModelComponents:
    """Load the components that the settings choose, except the grammar checker, which needs a started engine.

    Raises:
        ConfigError: a component or a file of the model cannot be loaded; gives the reason.
    """
    check_grammar_options(config, registry)
    tokenizer = load_tokenizer(model.model, model.load_format)
    json_calls = default_name(registry, "tool_parser", JSON_CALLS)
    return ModelComponents(
        tokenizer=tokenizer,
        request_fields=build_request_fields(model, config, registry),
        chat_template=build_chat_template(config.chat_template, registry, tokenizer, config.options),
        reasoning_parser=_load_parser(registry, REASONING, config.reasoning_parser, config.options),
        tool_parser=_load_parser(registry, TOOLS, config.tool_parser, config.options),
        json_tool_parser=(
            _load_parser(registry, TOOLS, json_calls, {})
            if json_calls in registry.names("tool_parser")
            else None
        ),
        sampling_defaults=(
            load_sampling_defaults(model.model) if config.sampling_defaults == "model" else {}
        ),
    )


async def start_engine(
    client: EngineClient, engine: EngineConfig, config: ServerConfig, registry: Registry
) -> ModelComponents:
    """Start an engine, load the model's components at the same time, and return them.

    Raises:
        ConfigError: a component or a file of the model cannot be loaded; gives the reason.
        EngineError: the engine could not be started.
    """
    if Path(engine.model).is_dir():
        check_files(Path(engine.model))
    starting = asyncio.create_task(client.start())
    try:
        components = await asyncio.to_thread(load_model_components, engine, config, registry)
        await starting
    finally:
        starting.cancel()
    if client.info.task == "generate":
        check_fit(components.tokenizer, client.info.model, client.info.vocab_size)
    components = msgspec.structs.replace(components, image_prompts=image_prompts_of(client.info, registry))
    return with_grammar_checker(components, config, registry, client.info.vocab_size)


def image_prompts_of(info: EngineInfo, registry: Registry) -> ImagePrompts | None:
    """Return the image processor that the engine has chosen for the model; None if the engine accepts only text."""
    if not info.reads_images:
        return None
    return ImagePrompter(media_processor_entry(registry, info.media_processor), info.model)


def with_grammar_checker(
    components: ModelComponents, config: ServerConfig, registry: Registry, vocab_size: int
) -> ModelComponents:
    """Return the components with a grammar checker for the chosen grammar backend.

    Args:
        vocab_size: width of the model's logits.

    Raises:
        ConfigError: as in `choose_grammar_backend`.
    """
    entry = choose_grammar_backend(config.grammar, registry)
    calls = registry.ledger.of(entry) if entry is not None else None
    limits = Limits(
        deadline_s=config.grammar_timeout,
        memory_mb=config.grammar_memory_mb,
        workers=config.grammar_workers,
    )
    checker = GrammarChecker(entry, components.tokenizer, vocab_size, calls, config.options, limits)
    return msgspec.structs.replace(components, grammar_checker=checker)


def _load_parser(
    registry: Registry, kind: ParserKind, name: str | None, options: Mapping[str, OptionValue]
) -> Any:
    """Return a parser's class with its options filled in; None if the server has no such parser.

    The class records the calls of its methods. Builds one parser, so that a parser that cannot be built is
    reported at start.
    """
    named, interface, arguments = kind
    entry = find_parser(named, name, options, registry)
    if entry is None:
        return None
    component, keywords = entry.load(), entry.built_with(options)
    entry.build(
        component, *arguments, **keywords
    )  # so that a parser that cannot be built is reported at start, not by each request
    return with_keywords(guarded(component, interface, registry.ledger.of(entry), per_request=True), keywords)


def _read_template(path: str, unknown: str) -> str:
    try:
        return read_text(user_path(path, "--chat-template"))
    except ModelError as error:
        raise ConfigError(f"chat template {path!r} cannot be read: {error} ({unknown})") from error
