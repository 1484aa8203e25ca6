"""Suggests the URL that a client may have meant if no route has the requested URL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MAX_PATH = 100
"""Longest path, in characters, that is compared with the routes' spellings."""

_LIKENESS = 0.8  # as for misspelled options

_LLAMA_CPP = {
    "/completion": "use /v1/completions",
    "/embedding": "use /v1/embeddings",
    "/infill": "use /v1/completions with suffix, if the tokenizer has the tokens for it",
    "/props": "use /get_model_info",
    "/slots": "use /metrics",
    "/apply-template": "use /v1/tokenize with messages",
}
"""Route of llama.cpp's server → what to use here, as on the page "Coming from vLLM, SGLang, …"."""

_PARAMETER = re.compile(r"\{[^}]*\}")


def url_hint(path: str, routes: Iterable[str]) -> str:
    """Return what to do about an unknown path, for the end of an error message; "" if nothing is close to it.

    Args:
        path: path of the request, such as "/chat/completions".
        routes: paths of all routes; parameters are in braces, as in "/v1/files/{file_id}".
    """
    known = tuple(routes)
    if _is_route(f"/v1{path}", known):
        return "the base URL needs /v1"
    if path.startswith("/v1/v1/") and _is_route(path.removeprefix("/v1"), known):
        return "the base URL has /v1 twice (Anthropic's clients add it themselves)"
    if path in _LLAMA_CPP:
        return f"this is a route of llama.cpp; {_LLAMA_CPP[path]}"
    fixed = [route for route in known if "{" not in route and route != "/"]
    near = difflib.get_close_matches(path, fixed, n=1, cutoff=_LIKENESS) if len(path) <= MAX_PATH else []
    return f"did you mean {near[0]}?" if near else ""


def _is_route(path: str, routes: Iterable[str]) -> bool:
    return any(path == route or ("{" in route and _pattern(route).fullmatch(path)) for route in routes)


def _pattern(route: str) -> re.Pattern[str]:
    """Return a pattern for the paths of a route, each of whose parameters is one segment of the path."""
    return re.compile("[^/]+".join(map(re.escape, _PARAMETER.split(route))))
