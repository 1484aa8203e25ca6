"""Decodes messages to the engine. A long list that several requests have in common is decoded only once.

The choices of one request are separate messages with equal sampling parameters. A request with 128 choices
and thousands of biased tokens would otherwise keep the engine busy for seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from llmfw.core.base.request import (
    Abort,
    Control,
    EmbedRequest,
    ReportQuery,
    Request,
    SamplingParams,
    StatsQuery,
    ToEngine,
)

LONG_FIELDS = ("logit_bias", "allowed_token_ids", "bad_words")
"""Fields of SamplingParams that may have thousands of entries."""

MAX_KEPT = 8  # values of each long field
LEAST_BYTES = 256  # shorter values are decoded again

_NAMES = tuple(name.encode() for name in LONG_FIELDS)

_ABSENT = msgspec.Raw()


class RequestDecoder:
    """Decodes the messages of all clients of an engine.

    Equal values of LONG_FIELDS in consecutive requests are the same object, so that later code can recognize
    them by identity.
    """

    def __init__(self) -> None:
        types = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}
        self._decoders = {name: msgspec.msgpack.Decoder(types[name]) for name in LONG_FIELDS}
        self._kept: dict[str, OrderedDict[bytes, Any]] = {name: OrderedDict() for name in LONG_FIELDS}
        sampling = _with_types(SamplingParams, dict.fromkeys(LONG_FIELDS, msgspec.Raw))
        self._request = _with_types(Request, {"sampling": sampling})
        self._plain: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
        self._decoder = msgspec.msgpack.Decoder(
            self._request | EmbedRequest | Abort | StatsQuery | ReportQuery | Control
        )

    def decode(self, payload: bytes) -> ToEngine:
        """Decode a message.

        Raises:
            msgspec.DecodeError: the payload is not a message, or a field has the wrong type.
            RequestError: a sampling parameter is out of range.
        """
        if not any(map(payload.__contains__, _NAMES)):  # nearly all messages
            return self._plain.decode(payload)
        message: Any = self._decoder.decode(payload)
        if not isinstance(message, self._request):
            return message  # type: ignore[no-any-return]
        values = msgspec.structs.asdict(message)
        sampling = msgspec.structs.asdict(values["sampling"])
        for name in LONG_FIELDS:
            raw = sampling.pop(name)
            if raw is not _ABSENT:
                sampling[name] = self._value(name, bytes(raw))
        return Request(**values | {"sampling": SamplingParams(**sampling)})

    def _value(self, name: str, raw: bytes) -> Any:
        if len(raw) < LEAST_BYTES:
            return self._decoders[name].decode(raw)
        kept = self._kept[name]
        if raw in kept:
            kept.move_to_end(raw)
        else:
            kept[raw] = self._decoders[name].decode(raw)
            if len(kept) > MAX_KEPT:
                kept.popitem(last=False)
        return kept[raw]


def _with_types(kind: type[msgspec.Struct], types: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a struct that is encoded like `kind`, and has other types for some fields."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        found = types.get(field.name, field.type)
        if field.required:
            fields.append((field.name, found))
        elif found is msgspec.Raw:
            fields.append((field.name, found, _ABSENT))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, found, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, found, field.default))
    return msgspec.defstruct(
        kind.__name__, fields, tag=kind.__struct_config__.tag, frozen=True, kw_only=True, omit_defaults=True
    )
