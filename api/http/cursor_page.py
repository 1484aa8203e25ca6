"""Pages of lists that are ordered by id: reads the query of a page, and builds the fields of its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from llmfw.core.base.errors import RequestError


class HasId(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str:
        """Id by which the list is ordered."""
        ...


ItemT = TypeVar("ItemT", bound=HasId)


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The requested page of a list.

    Attributes:
        limit: maximum number of items of the page.
        after: id of the last item before the page; None: the first page.
        newest_first: whether the list starts with the newest item.
    """

    limit: int
    after: str | None = None
    newest_first: bool = True

    @property
    def fetch(self) -> int:
        """Number of items to fetch: one more than are shown, to know whether there are more."""
        return self.limit + 1


def read_page_query(query: Mapping[str, str], *, prefix: str, most: int, default: int) -> PageQuery:
    """Return the page that the query parameters `limit`, `after` and `order` request.

    Args:
        query: query parameters of the request.
        prefix: prefix of the ids in this list, such as "file-".
        most: largest allowed `limit`.
        default: `limit` if the client does not set it.

    Raises:
        RequestError: a parameter is wrong; names the parameter.
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
    """Return the fields `data`, `first_id`, `last_id` and `has_more` of a page.

    Args:
        found: the first `query.fetch` items after `query.after`, or fewer if the list ends before.
    """
    shown = list(found[: query.limit])
    return {
        "data": shown,
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
        "has_more": len(found) > query.limit,
    }
