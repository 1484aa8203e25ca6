"""The interface of a request field: a field of request bodies that a plugin adds to the API.

Clients send it as any other field; OpenAI's clients send it in `extra_body`. The API checks the value, and
policies, drafters and observers get it as plain data in `Request.fields`, `Waiting.field`,
`DraftedRequest.fields` and `RequestStarted.fields`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

GENERATING_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/generate",
)
"""Routes that generate. Lines of batch jobs are bodies of the route that they name."""

MAX_FIELDS_BYTES = 16 * 1024
"""Maximum size of the values of all request fields of one request, encoded as msgpack, in bytes."""


class RequestField(ABC):
    """A field of request bodies. The component's registered name is the name of the field.

    It is active if `--request-fields` names it, or if a chosen component needs it (`needs_fields` of
    `register`). A field that is not active is an unknown field: the reply reports it as ignored, or, with
    `--strict-params`, the request is refused.

    Attributes:
        value_type: type of the value: any type that msgspec decodes from JSON, such as
            `Annotated[int, msgspec.Meta(ge=1)]`, a `msgspec.Struct` or `list[str]`. A value of another type
            is a 400 with the name of the field.
        default: value if the client sends no value, or null; None: the request then does not have the field.
        routes: routes whose bodies have the field.
    """

    value_type: ClassVar[Any]
    default: ClassVar[Any] = None
    routes: ClassVar[Collection[str]] = GENERATING_ROUTES

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o request_field.NAME.key=value`. A field with options overrides
        this."""

    def __init__(self, options: Options) -> None:
        """Prepare the field. Called once, when the server starts. Raise ConfigError if it cannot work."""
        self.options = options

    def validate(self, value: Any) -> Any:
        """Return the value to use, after checks that `value_type` cannot express. Must not return None.

        Called in the API process, on the event loop, with a value of `value_type` that the client sent, never
        with the default. All other requests wait meanwhile, so it must be quick and must not block. It may be
        called several times for one request, so equal values must give equal results.

        The result may differ from `value`. llmfw converts the result to plain data: numbers, strings, lists
        and dictionaries. A `msgspec.Struct` becomes a dictionary of all its fields: those that the client
        left out have their defaults. If the result has NaN, Infinity or an integer of more than 64 bits that the client
        did not send, the client gets a 500 that names the plugin. The fields of one request may take 16 KiB
        together.

        Raises:
            ValueError: the value is wrong. The error's message says why: the client gets a 400 with the name
                of the field. A RequestError is passed on unchanged. For any other exception, the client gets
                a 500 that names the plugin.
        """
        return value
