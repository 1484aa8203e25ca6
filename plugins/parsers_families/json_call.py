"""The base class of parsers whose calls are JSON objects with a name and arguments.

Does not depend on the markers around the calls.
"""

from __future__ import annotations

import re

import msgspec

from .calls import CallParser, Steps
from .json_scanner import JsonScanner

_STRING = r'"[^"\\\x00-\x1f]*"'
_HEADER = re.compile(
    r'\{ (?:(?!"(?:name|arguments|parameters)")STRING : STRING , )*'
    r'"name" : "(?P<name>[^"\\\x00-\x1f]*)" , "(?:arguments|parameters)" : (?=\{)'.replace(
        " ", r"[ \t\n\r]*"
    ).replace("STRING", _STRING)
)
_JUNK = re.compile(r"\s*\}?\s*\]?\s*\Z")


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class JsonCallParser(CallParser):
    """Reads `{"name": …, "arguments": …}`, or the same with `parameters` instead of `arguments`.

    The arguments may be an object, a string that contains an object in JSON, or missing. If the arguments
    are an object after the name, they are emitted as they arrive; otherwise the call is emitted as a whole.
    Other members are dropped.
    """

    def read_json_call(self, *ends: str) -> Steps[bool]:
        """Read one object at the reader's position; return whether it is a call.

        Args:
            ends: markers, one of which ends the arguments if they stop being JSON.
        """
        reader, scanner, start = self.reader, JsonScanner(), self.reader.at
        if not reader.text.startswith("{", start):
            return False
        while (header := _HEADER.match(reader.text, start)) is None:
            reader.at = scanner.feed(reader.text, reader.at)
            if scanner.done:
                return (yield from self._read_whole(reader.text[start : reader.at]))
            if scanner.broken or reader.ended:
                return False
            yield None
        if header["name"] not in self.names:
            return False
        reader.take(header.end())
        scanner = JsonScanner()
        scanner.feed(header[0])
        yield self.first_delta(header["name"])
        yield from self.read_arguments(scanner, *ends, junk=_JUNK)
        yield from self._skip_members(scanner)
        return True

    def read_json_calls(self, *ends: str) -> Steps[bool]:
        """Read one call, or an array of calls, at the reader's position; return whether there was one.

        If an item of an array is not a valid call, the text from there on is content.
        """
        is_array = yield from self.reader.literal("[")
        yield from self.reader.space()
        found = yield from self.read_json_call(*ends)
        if found and is_array:
            while (yield from self.read_another(",", *ends)):
                pass
            yield from self.skip("]")
        return found

    def read_another(self, separator: str, *ends: str) -> Steps[bool]:
        """Read a separator and a call after it; return whether both are present."""
        yield from self.reader.space()
        found = False
        if (yield from self.reader.literal(separator)):
            yield from self.reader.space()
            found = yield from self.read_json_call(*ends)
        self.reader.at = 0
        return found

    def _read_whole(self, text: str) -> Steps[bool]:
        try:
            call = msgspec.json.decode(text, type=_Call)
            arguments = _arguments(call.arguments or call.parameters)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return False
        if call.name not in self.names or arguments is None:
            return False
        self.reader.take(self.reader.at)
        yield self.first_delta(call.name, arguments)
        return True

    def _skip_members(self, scanner: JsonScanner) -> Steps[None]:
        """Drop the members after the arguments in the call's object."""
        while not scanner.broken:
            self.reader.take(scanner.feed(self.reader.text))
            if scanner.done or self.reader.ended:
                break
            yield None


def _arguments(raw: msgspec.Raw) -> str | None:
    """Return the arguments' JSON text as the model wrote it, or None if they are not an object."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str):
        text, value = value, msgspec.json.decode(value)
    else:
        text = bytes(raw).decode()
    return text if isinstance(value, dict) else None
