"""Pages of lists by id."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.http.cursor_page import PageQuery, page_of, read_page_query
from llmfw.core.base.errors import RequestError


@dataclass
class Item:
    id: str


def read(**query: str) -> PageQuery:
    return read_page_query(query, prefix="x_", most=100, default=20)


def test_a_query_selects_the_page():
    assert read() == PageQuery(limit=20, after=None, newest_first=True)
    assert read(limit="100", after="x_1", order="asc") == PageQuery(
        limit=100, after="x_1", newest_first=False
    )


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": limit} for limit in ("", "0", "-1", "101", "1.0", "٣", "9" * 5000)),
        {"after": "y_1"},
        {"after": ""},
        {"order": "DESC"},
    ],
)
def test_a_wrong_parameter_is_named(query):
    with pytest.raises(RequestError) as raised:
        read(**query)
    assert [raised.value.param] == list(query)


@given(st.integers(0, 10), st.integers(1, 5))
def test_pages_join_to_the_whole_list(size, limit):
    items = [Item(f"x_{index}") for index in range(size)]
    query, seen, more = PageQuery(limit=limit), [], True
    while more:
        page = page_of(items[len(seen) : len(seen) + query.fetch], query)
        seen += page["data"]
        more = page["has_more"]
        ends = (page["first_id"], page["last_id"])
        assert ends == ((page["data"][0].id, page["data"][-1].id) if page["data"] else (None, None))
    assert seen == items
