"""What ends a text, as clients of SGLang and vLLM ask for it and are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EOS, EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .wire import ROUTES, ask, chunks_of, error_of, text_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def last_choice(server: Served, route: str, stream: bool, **fields: Any) -> dict[str, Any]:
    """Return the choice of a reply, or that of the last chunk with the whole text."""
    if not stream:
        return dict(ask(server, route, "abcd 12 e", **fields)["choices"][0])
    choices = [chunk["choices"][0] for chunk in chunks_of(server, route, "abcd 12 e", **fields)]
    assert all("matched_stop" not in choice for choice in choices[:-1])
    return {**choices[-1], "text": "".join(map(text_of, choices))}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
class TestEndings:
    def test_a_stop_string_is_named(self, server: Served, route: str, stream: bool) -> None:
        choice = last_choice(server, route, stream, stop=["x", "c"])
        assert (choice["matched_stop"], choice["stop_reason"]) == ("c", "c")
        assert choice["finish_reason"] == "stop"

    def test_the_end_token_is_not_a_stop_reason(self, server: Served, route: str, stream: bool) -> None:
        choice = last_choice(server, route, stream)
        assert (choice["matched_stop"], choice["stop_reason"]) == (EOS, None)

    def test_an_end_by_length_has_no_stop(self, server: Served, route: str, stream: bool) -> None:
        choice = last_choice(server, route, stream, max_tokens=2)
        assert choice["matched_stop"] is choice["stop_reason"] is None
        assert choice["finish_reason"] == "length"

    @pytest.mark.parametrize("pattern", [r"\d+ e", [r"q+", r"\d+ e"]])
    def test_a_pattern_ends_the_text(
        self, server: Served, route: str, stream: bool, pattern: str | list[str]
    ) -> None:
        choice = last_choice(server, route, stream, stop_regex=pattern)
        assert text_of(choice) == "abcd "
        assert choice["matched_stop"] == choice["stop_reason"] == r"\d+ e"

    def test_stop_strings_work_with_patterns(self, server: Served, route: str, stream: bool) -> None:
        choice = last_choice(server, route, stream, stop_regex="d.*e", stop="12")
        assert (text_of(choice), choice["matched_stop"]) == ("abcd ", "12")

    @pytest.mark.parametrize("field", ["include_stop_str_in_output", "no_stop_trim"])
    @pytest.mark.parametrize("stop", [{"stop": "cd"}, {"stop_regex": "c[d]"}])
    def test_the_stop_string_can_be_included(
        self, server: Served, route: str, stream: bool, field: str, stop: dict[str, Any]
    ) -> None:
        assert text_of(last_choice(server, route, stream, **stop, **{field: True})) == "abcd"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("pattern", "param", "why"),
    [
        ("a*", "stop_regex", "empty"),
        (["a", "b$"], "stop_regex[1]", "assertion"),
        ("a" * 257, "stop_regex", "257"),
    ],
)
def test_an_unsupported_pattern_is_refused(
    server: Served, route: str, pattern: str | list[str], param: str, why: str
) -> None:
    error = error_of(server, route, "a", stop_regex=pattern)
    assert error["param"] == param
    assert why in error["message"]


def test_ignored_end_tokens_can_be_stop_tokens(server: Served) -> None:
    """With `ignore_eos`, the model's end only ends the text as one of `stop_token_ids`."""
    choice = ask(server, "completions", "abcd", stop_token_ids=[EOS], ignore_eos=True)["choices"][0]
    assert choice["matched_stop"] == choice["stop_reason"] == EOS


def test_a_scored_prompt_has_no_stop(server: Served) -> None:
    choice = ask(server, "completions", "ab", echo=True, max_tokens=0)["choices"][0]
    assert choice["matched_stop"] is choice["stop_reason"] is None
