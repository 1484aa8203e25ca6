"""Counts the values, levels and members of a JSON text as it arrives, without decoding it.

Decoding first would be too expensive: a million empty arrays are 2 MB of text, but take 64 MB and 0.4 s to
decode. The decoder checks later whether the text is valid JSON.
"""

from __future__ import annotations

from itertools import accumulate

from llmfw.core.base.errors import RequestError

from .limits import BodyLimits

CODE = "json_too_complex"

_OTHERS = bytes(set(range(256)) - set(b'[]{},:"'))
_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = [0] * 256
for _byte in b"[{":
    _STEP[_byte] = 1
for _byte in b"]}":
    _STEP[_byte] = -1


class JsonScan:
    """Counts the depth, values and nodes of one JSON text as it arrives, and enforces limits on them.

    Args:
        limits: limits of depth, values and nodes.

    Attributes:
        num_values: values so far.
        num_nodes: objects, arrays and member names so far.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._in_string = 0
        self._held = b""  # a backslash at the end of the last piece, which escapes the next character
        self._depth = 0
        self.num_values = 0
        self.num_nodes = 0

    def feed(self, data: bytes) -> None:
        """Count the next piece of the text; raise RequestError if the text exceeds a limit."""
        outside = self._outside(data)
        opened = outside.count(b"[") + outside.count(b"{")
        self.num_nodes += opened + outside.count(b":")
        self.num_values += opened + outside.count(b":") + outside.count(b",")
        limits = self._limits
        if self.num_nodes > limits.nodes:
            raise RequestError(
                f"the request's body has more than {limits.nodes} objects, arrays and member names; send several requests",
                code=CODE,
            )
        if self.num_values > limits.values:
            raise RequestError(
                f"the request's body has more than {limits.values} values; send several requests", code=CODE
            )
        if self._depth + opened <= limits.depth:
            self._depth += opened - outside.count(b"]") - outside.count(b"}")
        else:
            self._descend(outside)

    def _outside(self, data: bytes) -> bytes:
        """Return the structural characters of a piece that are outside strings."""
        if self._held:
            data, self._held = self._held + data, b""
        if b"\\" in data:
            if (len(data) - len(data.rstrip(b"\\"))) % 2:
                data, self._held = data[:-1], b"\\"
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Most strings are empty once their content is removed. Removing their quotes changes nothing else.
        data = data.translate(None, _OTHERS).replace(b'""', b"")
        pieces = data.split(b'"')
        outside = b"".join(pieces[self._in_string :: 2])
        self._in_string ^= (len(pieces) - 1) & 1
        return outside

    def _descend(self, outside: bytes) -> None:
        """Follow the depth bracket by bracket; raise RequestError if it exceeds the limit."""
        limit = self._limits.depth
        brackets = outside.translate(None, _BRACKETS)
        # Most brackets belong to the innermost levels, which are removed here and add at most two levels.
        others = brackets.replace(b"{}", b"").replace(b"[]", b"")
        opened = others.count(b"[") + others.count(b"{")
        if self._depth + opened + 2 <= limit:
            self._depth += 2 * opened - len(others)
            return
        levels = accumulate(map(_STEP.__getitem__, brackets), initial=self._depth)
        for level in levels:
            self._depth = level
            if level > limit:
                raise RequestError(
                    f"the request's body has objects or arrays nested more than {limit} deep; nest them less",
                    code=CODE,
                )
