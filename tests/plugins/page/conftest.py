"""A browser, and servers with the page: one with the demo model, and one that answers each chat with its own text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ...doubles.browser import CHROMIUM, Pipes, Tab, browser
from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import MARKERS, Served, byte_tokenizer, serving
from .servers import ROUTES, demo_server

WIDE, NARROW = (1440, 900), (390, 844)

OpenTab = Callable[..., Tab]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipes]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not installed")
    with browser(tmp_path_factory.mktemp("profile")) as pipes:
        yield pipes


@pytest.fixture
def open_tab(chromium: Pipes) -> Iterator[OpenTab]:
    """Return a function that opens a page in a new tab. At the end, nothing may have gone wrong in any of them."""
    opened: list[tuple[Tab, str]] = []

    def open_one(url: str, size: tuple[int, int] = WIDE, *, is_dark: bool = False) -> Tab:
        tab = Tab(chromium, size, is_dark=is_dark)
        opened.append((tab, url))
        tab.open(url)
        tab.wait("document.querySelector('.dot.up')")
        return tab

    yield open_one
    for tab, url in opened:
        found = tab.problems(url)
        tab.evaluate("localStorage.clear()")
        tab.close()
        assert found == []


@pytest.fixture(scope="session")
def demo() -> Iterator[Served]:
    """A server with the demo model, which keeps what it decides about requests."""
    with demo_server() as served:
        yield served


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose replies are the last message of the chat."""
    folder: Path = tmp_path_factory.mktemp("echo")
    engine = EchoEngine(max_model_len=4096)
    with serving(engine, byte_tokenizer(folder, MARKERS), plugin_routes=ROUTES) as served:
        yield served
