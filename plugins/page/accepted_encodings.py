"""Reads the header `accept-encoding`."""

from __future__ import annotations


def accepts_gzip(header: str) -> bool:
    """Return whether a client accepts gzip: by name or by `*`, and not with the weight 0."""
    weights = dict(_weight(part) for part in header.lower().split(","))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(part: str) -> tuple[str, float]:
    """Return the coding and the weight of a part such as "gzip;q=0.5"; a weight that is not a number is 0."""
    coding, _, parameter = part.partition(";")
    name, _, value = parameter.partition("=")
    if not parameter.strip():
        return coding.strip(), 1.0
    try:
        return coding.strip(), float(value) if name.strip() == "q" else 0.0
    except ValueError:
        return coding.strip(), 0.0
