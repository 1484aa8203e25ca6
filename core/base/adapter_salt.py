"""Salts of cached prefixes that keep those of adapters apart: "NAME\\x1eDIGEST\\x1eSALT"."""

from __future__ import annotations

_BETWEEN = "\x1e"


def adapter_salt(name: str, digest: str, salt: str) -> str:
    """Return the salt of the cached prefixes of requests with this adapter and this `cache_salt`.

    It is the same in all engines of a server.

    Args:
        name: name of the adapter; "": the model alone.
        digest: hash of the adapter's files, which tells its versions apart; "" for the model alone.
    """
    if not name and _BETWEEN not in salt:
        return salt
    # A salt that a client gives must not be taken for that of an adapter.
    return f"{name}{_BETWEEN}{digest}{_BETWEEN}{salt}"


def salt_parts(salt: str) -> tuple[str, str]:
    """Return the adapter's name and the `cache_salt` of a salt of cached prefixes; "" for the model alone."""
    parts = salt.split(_BETWEEN, 2)
    return (parts[0], parts[2]) if len(parts) == 3 else ("", salt)
