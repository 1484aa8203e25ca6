"""Counts what a JSON text holds as it arrives, without decoding it: values, nested levels, members.

A decoder would first make objects of it all: a million empty arrays are 2 MB of text, and 64 MB and 0.4 s decoded.
Whether the text is valid JSON is the decoder's business.
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
    """One text.

    Args:
        limits: of depth, values and nodes.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._in_string = 0
        self._held = b""  # a backslash whose meaning depends on what follows
        self._depth = 0
        self.num_values = 0
        self.num_nodes = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece; raise RequestError if there is more in the text than is allowed."""
        outside = self._outside(data)
        opened = outside.count(b"[") + outside.count(b"{")
        self.num_nodes += opened + outside.count(b":")
        self.num_values += opened + outside.count(b":") + outside.count(b",")
        limits = self._limits
        if self.num_nodes > limits.nodes:
            raise RequestError(
                f"the request's body has more than {limits.nodes} objects, arrays and member names", code=CODE
            )
        if self.num_values > limits.values:
            raise RequestError(f"the request's body has more than {limits.values} values", code=CODE)
        if self._depth + opened <= limits.depth:
            self._depth += opened - outside.count(b"]") - outside.count(b"}")
        else:
            self._descend(outside)

    def _outside(self, data: bytes) -> bytes:
        """Return the structural characters of a piece that are in no string."""
        if self._held:
            data, self._held = self._held + data, b""
        if b"\\" in data:
            if (len(data) - len(data.rstrip(b"\\"))) % 2:
                data, self._held = data[:-1], b"\\"
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        # Without what stands in them most strings are empty. Two quotes less change nothing for what follows.
        data = data.translate(None, _OTHERS).replace(b'""', b"")
        pieces = data.split(b'"')
        outside = b"".join(pieces[self._in_string :: 2])
        self._in_string ^= (len(pieces) - 1) & 1
        return outside

    def _descend(self, outside: bytes) -> None:
        """Follow each bracket; raise RequestError if one goes too deep."""
        limit = self._limits.depth
        brackets = outside.translate(None, _BRACKETS)
        # Most are those of the two innermost levels.
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
                    f"the request's body has objects or arrays nested more than {limit} deep", code=CODE
                )
