"""What is wrong with an input file: each bad line is named, with its number, and a good file has no complaint."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.batches import validation
from llmfw.api.batches.input_lines import LineSplitter, LongLine, read_lines
from llmfw.api.batches.line_decoding import decode_line
from llmfw.api.batches.validation import validate
from llmfw.api.server.limits import body_limits
from llmfw.core.base.config import ServerConfig
from llmfw.core.interfaces.batch_store import BatchError

from .rig import chat_line, chat_lines, jsonl, put_file

Stores = dict[str, Any]
LIMITS = body_limits(ServerConfig(served_model_name="demo"))
GOOD = chat_line("good")


class Demo:
    """A model that lines may call by its served name or by its folder's path, and its adapter "red"."""

    served_names = ("demo",)

    def served_name(self, model: str | None) -> str:
        return "demo"

    def reason_against_model(self, path: str, model: str) -> str | None:
        return None

    def is_named(self, model: str) -> bool:
        return model in ("demo", "/models/demo", "red")

    def adapter_of(self, model: str) -> tuple[str, str] | None:
        return ("red", "hash") if model == "red" else None


async def verdict_on(stores: Stores, data: bytes) -> validation.Verdict:
    file_id = await put_file(stores["files"], data)
    return await validate(stores["files"], file_id, "/v1/chat/completions", Demo(), LIMITS)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


BAD: dict[str, tuple[Any, str, str | None]] = {
    "no_json": ("{nonsense", "invalid_json_line", None),
    "cut": ('{"custom_id": "a', "invalid_json_line", None),
    "list": ([1], "invalid_json_line", None),
    "number": (3, "invalid_json_line", None),
    "null": (None, "invalid_json_line", None),
    "no_id": (without("custom_id"), "missing_required_parameter", "custom_id"),
    "null_id": ({**GOOD, "custom_id": None}, "missing_required_parameter", "custom_id"),
    "number_id": ({**GOOD, "custom_id": 7}, "invalid_request", "custom_id"),
    "empty_id": ({**GOOD, "custom_id": ""}, "invalid_custom_id", "custom_id"),
    "long_id": ({**GOOD, "custom_id": "i" * 513}, "invalid_custom_id", "custom_id"),
    "no_method": (without("method"), "missing_required_parameter", "method"),
    "method": ({**GOOD, "method": "GET"}, "invalid_method", "method"),
    "no_url": (without("url"), "missing_required_parameter", "url"),
    "url": ({**GOOD, "url": "/v1/embeddings"}, "url_mismatch", "url"),
    "no_body": (without("body"), "missing_required_parameter", "body"),
    "null_body": ({**GOOD, "body": None}, "invalid_request", "body"),
    "text_body": ({**GOOD, "body": "hi"}, "invalid_request", "body"),
    "model": (chat_line("a", model="other"), "model_not_found", "body.model"),
    "stream": (chat_line("a", stream=True), "invalid_request", "body.stream"),
    "background": (chat_line("a", background=True), "invalid_request", "body.background"),
}


@pytest.mark.parametrize("name", list(BAD))
async def test_a_wrong_line_is_named(stores: Stores, name: str) -> None:
    line, code, param = BAD[name]
    text = line if isinstance(line, str) else json.dumps(line)
    found = await verdict_on(stores, jsonl([chat_line("first")]) + text.encode() + b"\n")
    assert [(error.line, error.code, error.param) for error in found.errors] == [(2, code, param)]
    assert found.errors[0].message


async def test_all_wrong_lines_are_named(stores: Stores) -> None:
    lines = [json.dumps(line) if not isinstance(line, str) else line for line, _, _ in BAD.values()]
    found = await verdict_on(stores, "\n".join(lines).encode())
    assert [error.line for error in found.errors] == list(range(1, len(BAD) + 1))


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": -1},
        {"messages": 3},
        {"model": 3},
        {"stream": False},
        {"stream": "yes"},
        {"model": "demo"},
        {"model": "/models/demo"},
    ],
    ids=str,
)
async def test_validation_does_not_judge_request_bodies(stores: Stores, body: dict[str, Any]) -> None:
    assert (await verdict_on(stores, jsonl([{**GOOD, "body": body}]))).errors == ()


async def test_the_url_may_lack_its_v1(stores: Stores) -> None:
    assert (await verdict_on(stores, jsonl([{**GOOD, "url": "/chat/completions"}]))).errors == ()


async def test_a_repeated_id_names_its_second_line(stores: Stores) -> None:
    found = await verdict_on(stores, jsonl([*chat_lines(3), chat_line("c1")]))
    assert [(error.line, error.code) for error in found.errors] == [(4, "duplicate_custom_id")]


async def test_blank_lines_count_as_numbers_only(stores: Stores) -> None:
    data = b"\xef\xbb\xbf" + b"\r\n\n".join([jsonl([chat_line("a")]).strip(), b"  ", b"no", b""])
    found = await verdict_on(stores, data)
    assert found.num_lines == 2
    assert [(error.line, error.code) for error in found.errors] == [(5, "invalid_json_line")]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n"])
async def test_an_empty_file_is_invalid(stores: Stores, data: bytes) -> None:
    assert [error.code for error in (await verdict_on(stores, data)).errors] == ["empty_file"]


async def test_too_many_lines_are_invalid(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_LINES", 10)
    assert (await verdict_on(stores, jsonl(chat_lines(10)))).errors == ()
    assert [e.code for e in (await verdict_on(stores, jsonl(chat_lines(11)))).errors] == ["too_many_tasks"]


async def test_too_many_bytes_are_invalid(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_BYTES", 10)
    assert [e.code for e in (await verdict_on(stores, jsonl(chat_lines(1)))).errors] == ["file_too_large"]


async def test_errors_past_the_limit_are_counted(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_ERRORS", 2)
    *_, last = (await verdict_on(stores, b"no\n" * 5)).errors
    assert last == BatchError(code="too_many_errors", message="3 more lines are wrong")


async def test_a_missing_file_is_reported(stores: Stores) -> None:
    found = await validate(stores["files"], "file-none", "/v1/chat/completions", Demo(), LIMITS)
    assert [error.code for error in found.errors] == ["file_not_found"]


def split(data: bytes, cuts: list[int], max_line: int = 100) -> list[tuple[int, Any]]:
    splitter = LineSplitter(max_line)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    found = [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.finish())
    return [(number, "long" if isinstance(line, LongLine) else line) for number, line in found]


@given(
    st.lists(st.sampled_from([b"", b" ", b"a", b"bc", b"\r", b"x" * 9, b"y" * 10, b"z" * 11]), max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_lines_do_not_depend_on_chunking(lines: list[bytes], end: bytes, ends: bool, cuts: list[int]) -> None:
    data = end.join(lines) + (end if ends else b"")
    expected = [
        (number, "long" if len(line) > 10 else line.removesuffix(b"\r"))
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]
    assert split(data, cuts, 10) == expected


async def test_a_too_long_line_is_its_own_error(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineSplitter.__init__, "__defaults__", (2**20,))
    data = jsonl([chat_line("a"), chat_line("b", "x" * 2**21), chat_line("c")])
    found = await verdict_on(stores, data)
    assert [(error.line, error.code) for error in found.errors] == [(2, "line_too_long")]


async def test_reading_yields_to_the_event_loop(stores: Stores) -> None:

    file_id = await put_file(stores["files"], b"a\n" * 400_000)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    num_lines = 0
    async for _ in read_lines(stores["files"], file_id):
        num_lines += 1
    counting.cancel()
    assert num_lines == 400_000
    assert rounds > 20


@pytest.mark.parametrize(
    "body",
    [
        b'{"chat_template_kwargs": {%s}}' % b",".join(b'"k%d": 1' % i for i in range(200_000)),
        b'{"messages": [%s]}' % b",".join([b"{}"] * 200_000),
        b'{"messages": %s%s}' % (b"[" * 200, b"]" * 200),
        b'{"messages": "%s"}' % (b"a" * (17 * 2**20)),
    ],
    ids=["members", "objects", "depth", "bytes"],
)
async def test_a_line_has_a_body_s_limits(stores: Stores, body: bytes) -> None:
    """Decoding such a line held up all others for up to half a minute."""
    line = b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": %s}\n' % body
    [error] = (await verdict_on(stores, line)).errors
    assert error.code == ("line_too_long" if len(body) > 2**24 else "json_too_complex")
    assert "this line has" in error.message


async def test_half_a_surrogate_in_a_body_passes(stores: Stores) -> None:
    """It fails its own line when that runs, with the words of the live route."""
    body = rb'{"messages": [{"role": "user", "content": "\ud800"}]}'
    line = b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": %s}\n' % body
    assert (await verdict_on(stores, line)).errors == ()
    assert bytes(decode_line(line).body) == body  # type: ignore[arg-type]


async def test_half_a_surrogate_outside_bodies_is_refused(stores: Stores) -> None:
    line = (
        rb'{"custom_id": "\udc00", "method": "POST", "url": "/v1/chat/completions", "body": {"a": "\ud800"}}'
    )
    [error] = (await verdict_on(stores, line)).errors
    assert error.code == "invalid_json_line"
    assert r"it has \udc00 at byte 15, half of a surrogate pair" in error.message
