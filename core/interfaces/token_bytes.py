"""Maps token ids to bytes, independent of the surrounding tokens.

`Tokenizer.decode` cannot do this: for a token that is half a character it returns a replacement character,
and it removes the space before a text's first word. This module derives the bytes from the tokenizer's own
decoder. The concatenated bytes of a text's tokens are the UTF-8 of the text, except for a space that some
tokenizers add at the start, and for changes before tokenization, such as to lower case.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import tokenizers

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class TokenBytes:
    """Bytes of a vocabulary's tokens, computed on demand.

    Args:
        backend: tokenizer of the `tokenizers` library.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._found: dict[int, bytes] = {}
        self._steps = (
            [] if backend.decoder is None else list(_flat(json.loads(backend.decoder.__getstate__())))
        )
        self._kinds = {step["type"] for step in self._steps}
        self._added = {id: token.content for id, token in backend.get_added_tokens_decoder().items()}

    def of(self, token_id: int) -> bytes:
        """Return a token's bytes.

        For a special token, returns its name. For an id that the vocabulary lacks, returns b"".
        """
        found = self._found.get(token_id)
        if found is None:
            found = self._found[token_id] = self._find(token_id)
        return found

    def _find(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        if "ByteLevel" in self._kinds:
            alphabet = byte_alphabet()
            return b"".join([alphabet.get(letter) or letter.encode() for letter in piece])
        if "ByteFallback" in self._kinds and (byte := _BYTE_PIECE.fullmatch(piece)):
            return bytes.fromhex(byte[1])
        if not self._steps:
            return b" " + piece.encode()  # without a decoder, tokens are words separated by spaces
        return functools.reduce(_apply_decoder_step, self._steps, str(piece)).encode()


def _flat(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        for part in decoder["decoders"]:
            yield from _flat(part)
    else:
        yield decoder


def _apply_decoder_step(piece: str, step: dict[str, Any]) -> str:
    """Apply one step of the tokenizer's decoder to a token's text, and return the result."""
    if step["type"] == "Metaspace":
        return piece.replace(step["replacement"], " ")
    if step["type"] == "Replace":
        pattern = step["pattern"]
        if "String" in pattern:
            return piece.replace(pattern["String"], step["content"])
        return re.sub(pattern["Regex"], step["content"], piece)
    if step["type"] == "WordPiece":
        prefix = step["prefix"]
        return piece.removeprefix(prefix) if piece.startswith(prefix) else f" {piece}"
    if step["type"] == "BPEDecoder":
        return piece.replace(step["suffix"], " ")
    return piece  # steps that change only the ends of a text, or join several tokens


@functools.cache
def byte_alphabet() -> dict[str, bytes]:
    """Return the byte that each character of a byte-level vocabulary stands for (Radford et al., 2019).

    Printable characters stand for their own byte; the characters from 256 on stand for the other bytes, in
    order.
    """
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    return letters | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}
