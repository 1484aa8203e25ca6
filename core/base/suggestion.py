"""Suggests the known name that a user probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if no known name is similar."""
    import difflib  # only errors need it

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ". Did you mean 'NAME'?" for the end of an error message; "" if no known name is similar."""
    found = nearest(name, known)
    return f". Did you mean {found!r}?" if found else ""
