"""Pages of lists that are ordered by id: what a client asks for in the query, and what a page says of itself.

Knows nothing of what is listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from llmfw.core.base.errors import RequestError


class HasId(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str:
        """By which the list is ordered."""
        ...


ItemT = TypeVar("ItemT", bound=HasId)


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page is asked for.

    Attributes:
        after: the id that comes before the page's first one; None: the list's beginning.
    """

    limit: int
    after: str | None = None
    newest_first: bool = True

    @property
    def fetch(self) -> int:
        """How many items to look for: one more than are shown tells whether there are more."""
        return self.limit + 1


def read_page_query(query: Mapping[str, str], *, prefix: str, most: int, default: int) -> PageQuery:
    """Return the page that `limit`, `after` and `order` ask for.

    Args:
        query: of the request.
        prefix: of the ids in this list, such as "file-".
        most: that may be asked for at once.
        default: how many are shown if the client does not say.

    Raises:
        RequestError: names the parameter that is wrong.
    """
    limit = query.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise RequestError(f"limit is {limit[:100]!r}; it must be a number from 1 to {most}", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order is {order[:100]!r}; it must be asc or desc", param="order")
    after = query.get("after")
    if after is not None and not after.startswith(prefix):
        raise RequestError(
            f"after is {after[:100]!r}; it must be the id of an item of this list, '{prefix}…'", param="after"
        )
    return PageQuery(limit=int(limit), after=after, newest_first=order == "desc")


def page_of(found: Sequence[ItemT], query: PageQuery) -> dict[str, Any]:
    """Return `data`, `first_id`, `last_id` and `has_more` of a page.

    Args:
        found: `query.fetch` items from `query.after` on, or as many as there are.
    """
    shown = list(found[: query.limit])
    return {
        "data": shown,
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
        "has_more": len(found) > query.limit,
    }
