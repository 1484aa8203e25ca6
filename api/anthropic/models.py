"""Anthropic's form of the list of models, in pages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from llmfw.core.base.errors import RequestError

VERSION_HEADER = "anthropic-version"
"""Header that identifies Anthropic's clients."""

_MOST = 1000
_CURSORS = ("after_id", "before_id")


class AnthropicModel(msgspec.Struct, kw_only=True, tag="model"):
    """A served model in Anthropic's form. `created_at` is when the server started."""

    id: str
    display_name: str
    created_at: str
    lifecycle: str = "active"
    max_input_tokens: int
    max_tokens: int


class AnthropicModelPage(msgspec.Struct, kw_only=True):
    """A page of the list of models in Anthropic's form."""

    data: list[AnthropicModel]
    has_more: bool = False
    first_id: str | None
    last_id: str | None


def anthropic_model(name: str, created: int, max_model_len: int) -> AnthropicModel:
    """Return the served model in Anthropic's form.

    Args:
        created: seconds since the epoch.
        max_model_len: longest sequence; prompt and output have to fit into it together.
    """
    return AnthropicModel(
        id=name,
        display_name=name,
        created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created)),
        max_input_tokens=max_model_len,
        max_tokens=max_model_len,
    )


def model_page(models: Sequence[AnthropicModel], query: Mapping[str, str]) -> AnthropicModelPage:
    """Return the page of a list of models that `limit`, `after_id` and `before_id` request.

    Raises:
        RequestError: a parameter is wrong; names the parameter.
    """
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= _MOST):
        raise RequestError(f"limit is {limit[:100]!r}; it must be a number from 1 to {_MOST}", param="limit")
    ids = [model.id for model in models]
    for name in _CURSORS:
        if name in query and query[name] not in ids:
            raise RequestError(
                f"{name} is {query[name][:100]!r}, which is not in the list; it has {', '.join(map(repr, ids))}",
                param=name,
            )
    first = ids.index(query["after_id"]) + 1 if "after_id" in query else 0
    last = ids.index(query["before_id"]) if "before_id" in query else len(ids)
    found = models[first:last]
    # With only `before_id`, the page has the last items before the id.
    page = found[-int(limit) :] if "before_id" in query and "after_id" not in query else found[: int(limit)]
    if not page:
        return AnthropicModelPage(data=[], first_id=None, last_id=None)
    return AnthropicModelPage(
        data=[*page], has_more=len(page) < len(found), first_id=page[0].id, last_id=page[-1].id
    )
