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

    Accepts half of a surrogate pair in the line's body. Then only this line fails, when its request runs.

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
    """Return JSON with each half of a surrogate pair replaced by a text of the same length."""
    pieces, end = [], 0
    for start, half in half_surrogates(raw):
        pieces += [raw[end:start], _STAND_IN]
        end = start + len(half)
    return b"".join([*pieces, raw[end:]])


def _unpatched(raw: bytes, patched: bytes, body: object, error: ValueError) -> msgspec.Raw:
    """Return the line's original body; raise ValueError if the line has such halves outside its body."""
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
