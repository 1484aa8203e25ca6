"""Parses API keys: the key itself, or its SHA-256 digest as `sha256:HEX`.

The server stores only digests. SHA-256 without salt or stretching is enough for long random keys, because an
attacker cannot try 2^128 of them. SHA-256 is not enough for short keys, so the server warns about short keys.
"""

from __future__ import annotations

import hashlib
import re

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting_types import TENANT_NAME

MAX_KEY = 512  # characters
SHORT_KEY = 16  # characters
DIGEST_PREFIX = "sha256:"

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
_LIKE_DIGEST = re.compile(r"(sha-?[0-9]+|md5|blake\w+):.*", re.ASCII | re.IGNORECASE | re.DOTALL)
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY}}}")
_NAMED_KEY = re.compile(rf"({TENANT_NAME})=(.*[^=].*)", re.DOTALL)


def split_name(text: str) -> tuple[str, str]:
    """Split `NAME=KEY` into tenant and key. For a bare `KEY`, which may end in `=`, the name is ""."""
    found = _NAMED_KEY.fullmatch(text)
    return (found[1], found[2]) if found else ("", text)


def is_short(key: str) -> bool:
    """Return whether a key is short enough to be guessed.

    Always False for `sha256:HEX`, whose key is unknown.
    """
    return len(key) < SHORT_KEY


def digest_of(key: str) -> bytes:
    """Return the digest of a configured key, or the digest that `sha256:HEX` gives.

    Raises:
        ConfigError: the text is neither a valid key nor a digest. The message does not show it.
    """
    found = _DIGEST.fullmatch(key)
    if found:
        return bytes.fromhex(found[1])
    if like := _LIKE_DIGEST.fullmatch(key):
        raise ConfigError(
            f"an API key starts with {like[1] + ':'!r}, as a digest does; a digest is {DIGEST_PREFIX!r} and 64 "
            "hexadecimal digits"
        )
    if len(key) > 1 and key[0] == key[-1] and key[0] in "'\"":
        raise ConfigError("an API key is in quotes; write it without them")
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"an API key has {len(key)} characters; it must have 1 to {MAX_KEY}, all of them ASCII letters, digits or "
            "punctuation, without spaces"
        )
    return hashlib.sha256(key.encode()).digest()


def hashed(key: str) -> str:
    """Return a key as `sha256:HEX`; raise ConfigError as `digest_of` does."""
    return DIGEST_PREFIX + digest_of(key).hex()
