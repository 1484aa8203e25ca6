"""Chooses and builds the request fields of plugins. Does not import Litestar."""

from __future__ import annotations

import msgspec

from llmfw.api.schemas.anthropic import MessagesRequest
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.common import Inert
from llmfw.api.schemas.completions import CompletionRequest
from llmfw.api.schemas.native import GenerateRequest
from llmfw.api.schemas.request_fields import ActiveField
from llmfw.api.schemas.responses import ResponsesRequest
from llmfw.api.text.request_fields import RequestFields
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.request_field import RequestField
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registration import is_field_name
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.plugin.request_fields import checker, fault_of

from .chosen_fields import chosen_fields

BODIES = (ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest, GenerateRequest)


def check_request_fields(engine: EngineConfig, server: ServerConfig, registry: Registry) -> None:
    """Check the request fields that the settings choose, without building them.

    Raises:
        ConfigError: as in `build_request_fields`.
    """
    for entry in chosen_fields(engine, server, registry):
        check_declaration(entry, entry.load())
        entry.build_options(server.options)


def build_request_fields(engine: EngineConfig, server: ServerConfig, registry: Registry) -> RequestFields:
    """Build the request fields that `--request-fields` names, or that a chosen component needs.

    Raises:
        ConfigError: a field is unknown or cannot work, or its name is taken; or an option is wrong, or is for
            a field that is not chosen.
        ComponentError: a field's class is wrong.
    """
    return RequestFields(
        [_active(entry, server, registry) for entry in chosen_fields(engine, server, registry)]
    )


def active_field(entry: Entry, field: RequestField, calls: ComponentCalls) -> ActiveField:
    """Return a field as the API uses it. Its checks are counted as calls of the component."""
    return ActiveField(
        name=entry.name,
        value_type=field.value_type,
        default=msgspec.to_builtins(field.default),
        routes=frozenset(field.routes),
        checked=calls.watched(checker(entry.name, field)),
    )


def check_declaration(entry: Entry, found: type[RequestField]) -> None:
    """Raise ComponentError if a field's class lacks a required declaration, or if its name is taken."""
    if not is_field_name(entry.name):
        raise ComponentError(
            f"{entry} is not a name of a field; it must have letters, digits and '_', a letter first"
        )
    if entry.name in _taken_names():
        raise ComponentError(f"{entry} has the name of a field of the API; choose another name")
    if (fault := fault_of(found)) is not None:
        raise ComponentError(f"{entry} {fault}")


def _active(entry: Entry, server: ServerConfig, registry: Registry) -> ActiveField:
    found: type[RequestField] = entry.load()
    check_declaration(entry, found)
    field = entry.build(found, entry.build_options(server.options))
    return active_field(entry, field, registry.ledger.of(entry))


def _taken_names() -> set[str]:
    """Return the names of all fields that the API's bodies have, always refuse, or ignore on purpose."""
    names = set(Inert.__struct_fields__)
    for body in BODIES:
        refused = (name for name, refusal in body.refused.items() if not refusal.is_of_sampler)
        names |= {*body.__struct_fields__, *body.__struct_encode_fields__, *refused}
    return names
