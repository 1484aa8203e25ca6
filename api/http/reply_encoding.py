"""Encodes large replies choice by choice, so that other requests run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

SLICE_BYTES = 2**18
"""Number of encoded bytes after which other requests run: less than a millisecond of work."""

_encode = msgspec.json.Encoder().encode


async def encode_reply(reply: msgspec.Struct | Sequence[msgspec.Struct]) -> bytes:
    """Return a reply as JSON. The items of its field `choices`, or of a reply that is a list, are encoded one by one."""
    items: Sequence[Any] = reply if isinstance(reply, list) else getattr(reply, "choices", ())
    if len(items) < 2:
        return _encode(reply)
    encoded, unpaused = [], 0
    for item in items:
        encoded.append(msgspec.Raw(_encode(item)))
        unpaused += len(encoded[-1])
        if unpaused > SLICE_BYTES:
            await asyncio.sleep(0)
            unpaused = 0
    whole: Any = (
        encoded
        if isinstance(reply, list)
        else msgspec.structs.replace(cast("msgspec.Struct", reply), choices=encoded)
    )
    return _encode(whole)
