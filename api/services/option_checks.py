"""Checks options of components before the engine process starts. Imports neither torch nor Litestar.

The engine process checks the options of components that import torch, before it reads the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from llmfw.api.media.settings import media_policy
from llmfw.api.text.model_names import check_adapter_names
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import UnknownComponentError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.plugin.registry import Entry, Registry

from .chosen_fields import chosen_fields


def check_options(engine: EngineConfig, server: ServerConfig, registry: Registry) -> None:
    """Check options of components, the request fields, the hosts of images and the names of adapters.

    Checks the options of the policy, the eviction rule, the router, the chat template, the parsers and the
    grammar backend.

    Raises:
        ConfigError: an option is unknown or its value is wrong, or no component of the option's kind is
            chosen; a request field cannot be used, a host of images is not a host name, or an adapter has
            the model's name.
    """
    media_policy(server)
    check_adapter_names(engine, server.served_model_name)
    kinds = {key.partition(".")[0] for key in server.options}
    if "grammar" in kinds:
        check_grammar_options(server, registry)
    if "policy" in kinds:
        registry.find("policy", engine.policy).build_options(server.options)
    if "eviction" in kinds:
        registry.find("eviction", engine.eviction).build_options(server.options)
    if "router" in kinds:
        registry.find("router", server.router).build_options(server.options)
    if "chat_template" in kinds:
        _template_entry(server.chat_template, registry).build_options(server.options)
    if chosen_fields(engine, server, registry):
        from .request_fields import check_request_fields  # imports the schemas of all routes

        check_request_fields(engine, server, registry)
    for kind, name in (("tool_parser", server.tool_parser), ("reasoning_parser", server.reasoning_parser)):
        if kind in kinds and (entry := find_parser(kind, name, server.options, registry)):
            entry.build_options(server.options)


def find_parser(
    kind: str, name: str | None, options: Mapping[str, OptionValue], registry: Registry
) -> Entry | None:
    """Return the registry entry of the chosen parser; None if no parser is chosen.

    Raises:
        ConfigError: there is no such parser, or options are set although no parser is chosen.
    """
    if name:
        return registry.find(kind, name)
    spoken = kind.replace("_", " ")
    refuse_options(kind, options, f"no {spoken} is chosen; --{kind.replace('_', '-')} NAME chooses one")
    return None


def default_template(registry: Registry) -> str:
    """Return the name of the component that renders the model's own template, and template files."""
    return default_name(registry, "chat_template", "jinja")


def _template_entry(name: str | None, registry: Registry) -> Entry:
    """Return the registry entry of a chat template.

    For a file or the model's own template, this is `jinja`.
    """
    try:
        return registry.find("chat_template", name or default_template(registry))
    except UnknownComponentError:
        return registry.find("chat_template", default_template(registry))


def check_grammar_options(config: ServerConfig, registry: Registry) -> None:
    """Raise ConfigError if an option of the grammar backend is wrong, or is set without a backend."""
    entry = choose_grammar_backend(config.grammar, registry)
    if entry is None:
        refuse_options("grammar", config.options, "there is no grammar backend; --grammar NAME chooses one")
    elif config.grammar != "auto" or any(key.startswith("grammar.") for key in config.options):
        entry.build_options(config.options)  # otherwise the backend is loaded with the first grammar
