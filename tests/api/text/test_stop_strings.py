"""Stop strings hold for a text, not for the pieces in which it comes."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.text.stop_strings import StopStrings

texts = st.text("abc", max_size=30)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4)


def feed_all(stops: list[str], pieces: list[str]) -> str:
    watcher, out = StopStrings(stops), ""
    for piece in pieces:
        text, stop = watcher.feed(piece)
        out += text
        if stop is not None:
            return out
    return out + watcher.finish()


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


@given(texts, stop_lists, st.lists(st.integers(0, 100)))
def test_chunking_does_not_change_the_end(text: str, stops: list[str], places: list[int]) -> None:
    assert feed_all(stops, cut(text, places)) == feed_all(stops, [text])


@given(texts, stop_lists)
def test_text_ends_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    endings = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    expected = text
    if endings:
        before = text[: endings[0]]
        expected = min((before.removesuffix(stop) for stop in stops), key=len)
    assert feed_all(stops, list(text)) == expected


@given(texts, stop_lists)
def test_only_possible_stop_strings_are_held_back(text: str, stops: list[str]) -> None:
    watcher, given_out = StopStrings(stops), ""
    for i, character in enumerate(text):
        new, stop = watcher.feed(character)
        given_out += new
        if stop is not None:
            return
        held = text[len(given_out) : i + 1]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_many_stop_strings_cost_little() -> None:
    watcher = StopStrings([f"q{i}" for i in range(256)])
    begin = time.process_time()
    for _ in range(2000):
        watcher.feed("a word that is as long as a few tokens")
    assert time.process_time() - begin < 1
