"""The view Watch in a real browser, while the demo model serves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from ...doubles.serving import Served
from .conftest import NARROW, WIDE, OpenTab

pytestmark = [pytest.mark.long, pytest.mark.torch]

SYSTEM = "You are a helpful assistant who answers in few words about geography and history of Europe."


@pytest.fixture
def busy(demo: Served) -> Iterator[Served]:
    """The server with the demo model, with three clients that send one request after the other."""
    ends = threading.Event()

    def work(name: str) -> None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"I am {name}."}]
        while not ends.is_set():
            demo.post(
                "/v1/chat/completions",
                {"messages": messages, "max_tokens": 60, "ignore_eos": True, "user": name},
            )

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "<b>eve</b>")]
    for thread in threads:
        thread.start()
    try:
        yield demo
    finally:
        ends.set()
        for thread in threads:
            thread.join()


PAINTED = (
    "(canvas => { const {width, height} = canvas; const copy = new OffscreenCanvas(width, height)"
    ".getContext('2d', {willReadFrequently: true}); copy.drawImage(canvas, 0, 0);"
    "const {data} = copy.getImageData(0, 0, width, height); let num = 0;"
    "for (let i = 3; i < data.length; i += 4) num += data[i] > 0; return num })"
    "(document.querySelector('canvas.lanes'))"
)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_batch_is_drawn_step_by_step(
    busy: Served, open_tab: OpenTab, size: tuple[int, int], is_dark: bool
) -> None:
    tab = open_tab(f"{busy.url}/#watch", size, is_dark=is_dark)
    tab.wait("Number(document.querySelector('.figure .value').innerText) >= 1")
    tab.wait(f"{PAINTED} > 2000")
    tab.wait("document.querySelectorAll('.requests tbody tr button').length >= 1")
    tab.wait("document.querySelectorAll('.bars span').length >= 2")
    tab.wait("document.querySelectorAll('.phase').length === 5")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_paused_view_scrolls_back(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.wait(f"{PAINTED} > 2000")
    tab.click("button", "Pause")
    picture = "document.querySelector('canvas.lanes').toDataURL()"
    before = tab.evaluate(picture)
    tab.evaluate("new Promise(done => setTimeout(done, 400))")
    assert tab.evaluate(picture) == before
    back = "(range => { range.value = Number(range.max) - 20; range.dispatchEvent(new Event('input')) })"
    tab.evaluate(f"{back}(document.querySelector('input[type=range]'))")
    assert tab.evaluate(picture) != before
    tab.click("button", "Go on")
    tab.wait(f"{picture} !== {json.dumps(before)}")


def test_a_request_tells_its_story(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.click(".requests tbody button")
    tab.wait("document.querySelector('.timeline')?.innerText.includes('was admitted')")


def test_tenants_are_shown_as_text(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.wait("document.querySelector('.requests').innerText.includes('<b>eve</b>')")
    assert tab.evaluate("document.querySelectorAll('.requests b').length") == 0


def test_the_cache_is_a_map_without_texts(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.wait("document.querySelectorAll('.prefix').length >= 2")
    assert "tokens in" in tab.text(".pair .card p")
    words = "[...document.querySelectorAll('.prefix')].map(each => each.getAttribute('aria-label')).join()"
    assert "geography" not in tab.evaluate(words)
    tab.click("input[name=texts]")
    tab.wait(f"{words}.includes('geography')")


def test_the_policy_is_switched(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.wait("document.querySelector('select[name=policy]')?.options.length >= 4")
    tab.write("select[name=policy]", "fcfs")
    tab.wait("document.querySelector('#notice').innerText.includes('fcfs')")
    tab.write("select[name=policy]", "lpm")
    tab.wait("document.querySelector('#notice').innerText.includes('lpm')")


def test_a_hidden_view_reads_no_frames(busy: Served, open_tab: OpenTab) -> None:
    tab = open_tab(f"{busy.url}/#watch")
    tab.wait("document.querySelector('.figure .value').innerText !== '–'")
    tab.click("nav a", "Play")
    tab.evaluate("new Promise(done => setTimeout(done, 600))")
    num = len(tab.requests())
    tab.evaluate("new Promise(done => setTimeout(done, 2500))")
    assert [url for url in tab.requests()[num:] if "/health" not in url] == []


LANES = (
    "import('./page/history.js').then(({History}) => { const history = new History();"
    "const ask = (number, id) => [number, id, '', false, 4, 5, 4, ''];"
    "history.take({steps: [[1, 0, [7], [4], [1]], [2, 0, [7, 8], [1, 4], [0, 1]]], running: [ask(7, 'a'), ask(8, 'b')],"
    " waiting: [], ended: [], num_waiting: 0});"
    "history.take({steps: [[3, 0, [8], [1], [0]]], running: [ask(8, 'b')], waiting: [ask(7, 'a')], ended: [], num_waiting: 1});"
    "const retracted = history.steps.at(-1).retracted.slice();"
    "history.take({steps: [[1, 0, [0], [4], [1]]], running: [ask(0, 'c')], waiting: [], ended: [], num_waiting: 0});"
    "for (let i = 2; i < 5000; i++) history.take({steps: [[i, 0, [i], [1], [0]]], running: [ask(i, 'd')], waiting: [],"
    " ended: [], num_waiting: 0});"
    "return {retracted, steps: history.steps.length, known: history.known.size, lanes: history.numLanes,"
    " last: history.steps.at(-1).number} })"
)


def test_the_history_is_bounded(demo: Served, open_tab: OpenTab) -> None:
    """It starts anew with another engine's steps, and marks requests that wait again."""
    found = open_tab(demo.url).evaluate(LANES)
    assert found["retracted"] == [0]
    assert (found["steps"], found["last"]) == (2400, 4999)
    assert found["known"] <= 2401
    assert found["lanes"] <= 40
