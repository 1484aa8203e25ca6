"""A server's URL as users type it."""

from __future__ import annotations

import pytest

from llmfw.core.base.server_url import server_url


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("localhost:30000", "http://localhost:30000"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        (" http://h:1/ ", "http://h:1"),
        ("https://example.com/llm/v1", "https://example.com/llm"),
        ("[::1]:30000", "http://[::1]:30000"),
        ("gpu-box", "http://gpu-box"),
    ],
)
def test_the_scheme_is_optional(typed: str, url: str) -> None:
    assert server_url(typed) == url


@pytest.mark.parametrize(
    "typed", ["", ":30000", "http://", "http://[", "ftp://x", "a b", "h:3oooo", "h:99999", "h:0"]
)
def test_an_invalid_url_is_refused_with_an_example(typed: str) -> None:
    with pytest.raises(ValueError, match=r"not a URL.*must look like") as caught:
        server_url(typed)
    assert repr(typed) in str(caught.value)


def test_a_query_is_refused() -> None:
    with pytest.raises(ValueError, match="without it"):
        server_url("localhost:1/v1?key=1")
