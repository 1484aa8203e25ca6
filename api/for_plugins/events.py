"""Decodes the frames that the services stream."""

from __future__ import annotations

from typing import Any

import msgspec

_PREFIX, _END, _DONE = b"data: ", b"\n\n", b"[DONE]"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def chunks_of(frames: bytes) -> list[dict[str, Any]]:
    """Return the chunks in complete frames of server-sent events. Skips comments and `[DONE]`."""
    return [
        _decode(payload)
        for frame in frames.split(_END)
        if frame.startswith(_PREFIX) and (payload := frame.removeprefix(_PREFIX)) != _DONE
    ]
