"""Decodes the lines of a job's input file."""

from __future__ import annotations

import msgspec

from llmfw.api.http.body import half_surrogates
from llmfw.api.schemas.batches import InputLine

_decode = msgspec.json.Decoder(InputLine).decode

_STAND_IN = rb"\uFFFD"
"""Replaces half of a surrogate pair while a line is decoded. It has the same length."""


def decode_line(raw: bytes) -> InputLine:
    """Decode a line.

    Half of a surrogate pair in the line's body passes: only the request of this line fails when it runs.

    Raises:
        ValueError: the line is not valid JSON, or has another form.
        RecursionError: the line is nested too deeply.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise
    except ValueError as error:
        patched = without_halves(raw)
        if patched == raw:
            raise
        line = _decode(patched)
        line.body = _unpatched(raw, patched, line.body, error)
        return line


def without_halves(raw: bytes) -> bytes:
    """Return JSON with halves of surrogate pairs replaced, of the same length."""
    pieces, end = [], 0
    for start, half in half_surrogates(raw):
        pieces += [raw[end:start], _STAND_IN]
        end = start + len(half)
    return b"".join([*pieces, raw[end:]])


def _unpatched(raw: bytes, patched: bytes, body: object, error: ValueError) -> msgspec.Raw:
    """Return the body as it stands in the line; raise ValueError if halves are outside of it."""
    found = bytes(body) if isinstance(body, msgspec.Raw) else b""
    start = patched.find(found)
    end = start + len(found)
    if outside := [half for half in half_surrogates(raw) if not start <= half[0] < end]:
        place, half = outside[0]
        raise ValueError(
            f"it has {half.decode()} at byte {place}, half of a surrogate pair: no character; send the character "
            "itself, or both halves"
        ) from error
    return msgspec.Raw(raw[start:end])
