"""The view Batches in a real browser: from a file to results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ...doubles.serving import Served
from .conftest import NARROW, WIDE, OpenTab
from .payloads import FOUND, HARMLESS, PAYLOADS

pytestmark = [pytest.mark.long]

FILE = "input[type=file][aria-label^=File]"


def write(folder: Path, *lines: Any, name: str = "requests.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def line(name: str, text: str = "hello", **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "custom_id": name,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }


@pytest.mark.parametrize(("size", "is_dark"), [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"])
def test_a_file_becomes_results(
    echo: Served, open_tab: OpenTab, tmp_path: Path, size: tuple[int, int], is_dark: bool
) -> None:
    tab = open_tab(f"{echo.url}/#batches", size, is_dark=is_dark)
    name = f"capitals-{size[0]}.jsonl"
    tab.upload(FILE, write(tmp_path, line("one", "first text"), line("two", "second text"), name=name))
    tab.wait("document.querySelector('.drop').innerText.includes('2 lines, /v1/chat/completions')")
    tab.click(".drop button", "Start")
    card = f"[...document.querySelectorAll('.batch')].find(each => each.innerText.includes('{name}'))"
    tab.wait(f"{card}?.innerText.includes('completed')")
    assert "2 of 2 lines answered" in tab.evaluate(f"{card}.innerText")
    tab.evaluate(f"[...{card}.querySelectorAll('button')].find(each => each.innerText === 'Results').click()")
    tab.wait("document.querySelectorAll('.results li').length === 2")
    tab.write("input[name=filter]", "second")
    tab.wait("document.querySelectorAll('.results li').length === 1")
    assert "second text" in tab.text(".results")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["nonsense"], "Line 1 is not JSON"),
        ([line("a"), line("a")], "Line 2 has the custom_id of line 1"),
        ([line("a") | {"url": "/v1/other"}], "Line 1 has the url"),
        ([line("a") | {"method": "GET"}], "Line 1 has the method"),
        ([line("a") | {"body": 3}], "Line 1 has no body"),
        ([line("a"), line("b") | {"url": "/v1/embeddings"}], "All lines must have one url"),
        ([line("a") | {"extra": 1}], "that a line does not have"),
        ([], "The file has no lines"),
        (["[1]"], "Line 1 is not an object"),
    ],
)
def test_a_wrong_file_is_not_sent(
    echo: Served, open_tab: OpenTab, tmp_path: Path, lines: list[Any], words: str
) -> None:
    tab = open_tab(f"{echo.url}/#batches")
    tab.upload(FILE, write(tmp_path, *lines))
    tab.wait("document.querySelector('.drop .problem')")
    assert words in tab.text(".drop")
    assert not tab.evaluate(
        "[...document.querySelectorAll('.drop button')].some(each => each.innerText === 'Start')"
    )


def test_failed_lines_run_again(echo: Served, open_tab: OpenTab, tmp_path: Path) -> None:
    tab = open_tab(f"{echo.url}/#batches")
    tab.upload(FILE, write(tmp_path, line("good"), line("bad", max_tokens=-1), name="half.jsonl"))
    tab.click(".drop button", "Start")
    card = "[...document.querySelectorAll('.batch')].find(each => each.querySelector('h2').innerText === 'half.jsonl')"
    tab.wait(f"{card}?.innerText.includes('1 failed')")
    tab.wait(f"[...{card}.querySelectorAll('button')].some(each => each.innerText.includes('Retry'))")
    tab.evaluate(f"[...{card}.querySelectorAll('button')].find(each => each.innerText === 'Errors').click()")
    tab.wait("document.querySelector('.results')?.innerText.includes('max_tokens')")
    tab.click("dialog button", "Close")
    tab.evaluate(
        f"[...{card}.querySelectorAll('button')].find(each => each.innerText.includes('Retry')).click()"
    )
    tab.wait("document.body.innerText.includes('failed lines of half.jsonl')")


def test_a_batch_is_cancelled(echo: Served, open_tab: OpenTab, tmp_path: Path) -> None:
    echo.engine.delay = 0.05
    try:
        tab = open_tab(f"{echo.url}/#batches")
        lines = [line(str(i), "a long text " * 20) for i in range(20)]
        tab.upload(FILE, write(tmp_path, *lines, name="slow.jsonl"))
        tab.click(".drop button", "Start")
        card = "[...document.querySelectorAll('.batch')].find(each => each.innerText.includes('slow.jsonl'))"
        tab.wait(f"{card}?.querySelector('.status.in_progress')")
        tab.click(".batch button", "Cancel")
        tab.wait(f"{card}?.querySelector('.status.cancelled, .status.cancelling')")
    finally:
        echo.engine.delay = 0
    tab.wait(f"{card}?.querySelector('.status.cancelled')")


def test_names_and_results_are_text(echo: Served, open_tab: OpenTab, tmp_path: Path) -> None:
    tab = open_tab(f"{echo.url}/#batches")
    name = "<img src=x onerror=hacked=1>.jsonl"
    lines = [line(f"{i} {payload}"[:400], payload) for i, payload in enumerate(PAYLOADS[:40])]
    tab.upload(FILE, write(tmp_path, *lines, name=name))
    tab.click(".drop button", "Start")
    tab.wait("[...document.querySelectorAll('.batch')][0]?.innerText.includes('40 of 40')")
    tab.click(".batch button", "Results")
    tab.wait("document.querySelectorAll('.results li').length === 40")
    for selector in (".batches", "dialog"):
        assert tab.evaluate(f"{FOUND}(document.querySelector('{selector}'))") == HARMLESS
    assert name in tab.text(".batch h2")
