"""Keeps the last bytes of a text in a buffer of fixed size, which another process may share."""

from __future__ import annotations

import struct

_TOTAL = struct.Struct("<Q")


class TextRing:
    """A text stream that keeps only the end of the written text.

    The buffer holds the number of bytes that were written (8 bytes, little-endian), and then the ring.
    Another process may read the buffer at any time, also after the writer was killed.

    Args:
        buffer: the memory; zeros, or a ring that another `TextRing` has written to.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._ring = buffer[_TOTAL.size :]

    def write(self, text: str) -> int:
        """Append a text; return its number of characters. Keeps only the end of a text that is too long."""
        size = len(self._ring)
        data = text.encode("utf-8", "backslashreplace")
        total = self._total() + len(data)
        data = data[-size:]
        start = (total - len(data)) % size
        first = min(len(data), size - start)
        self._ring[start : start + first] = data[:first]
        self._ring[: len(data) - first] = data[first:]
        _TOTAL.pack_into(self._buffer, 0, total)
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def text(self) -> str:
        """Return the text in the ring, without the first line if the start of that line was overwritten."""
        size, total = len(self._ring), self._total()
        if total <= size:
            return bytes(self._ring[:total]).decode(errors="replace")
        start = total % size
        kept = bytes(self._ring[start:]) + bytes(self._ring[:start])
        return kept.partition(b"\n")[2].decode(errors="replace")

    def _total(self) -> int:
        total: int = _TOTAL.unpack_from(self._buffer)[0]
        return total
