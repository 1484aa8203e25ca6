"""Salts that keep the cached prefixes of different adapters apart: "NAME\\x1eDIGEST\\x1eSALT"."""

from __future__ import annotations

_BETWEEN = "\x1e"


def adapter_salt(name: str, digest: str, salt: str) -> str:
    """Return the salt of the cached prefixes of requests with this adapter and this `cache_salt`.

    The salt is the same in all engines of a server.

    Args:
        name: name of the adapter; "": the model alone.
        digest: hash of the adapter's files, which distinguishes versions of the adapter; "" for the model
            alone.
    """
    if not name and _BETWEEN not in salt:
        return salt
    # A client's salt must not be mistaken for an adapter's salt.
    return f"{name}{_BETWEEN}{digest}{_BETWEEN}{salt}"


def salt_parts(salt: str) -> tuple[str, str]:
    """Return the adapter's name ("" for the model alone) and the `cache_salt` that are in a salt."""
    parts = salt.split(_BETWEEN, 2)
    return (parts[0], parts[2]) if len(parts) == 3 else ("", salt)
