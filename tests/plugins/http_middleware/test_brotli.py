"""`br`: compresses by what the client weighs most, and says what to install where the package is missing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from llmfw.core import ConfigError
from llmfw.core.testing import HTTPMiddlewareTests, MiddlewareExample
from llmfw.core.testing.exchange import EVENTS, JSON, exchange
from llmfw.plugins.http_middleware.brotli import Brotli

from .examples import gzip_examples

LONG = b'{"text": "%s"}' % (b"again " * 1_000)
BIG = LONG * 40
"""A body that is compressed in a thread."""


def encoding(accepted: bytes) -> bytes:
    middleware = Brotli(Brotli.Options())
    headers = [(b"accept-encoding", accepted)]
    return exchange(middleware, headers=headers, reply=[LONG], reply_headers=[JSON]).header(
        b"content-encoding"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)
    with pytest.raises(ConfigError, match=r"pip install 'llmfw-engine\[brotli\]'"):
        Brotli(Brotli.Options())


class TestBrotli(HTTPMiddlewareTests):
    """Clients that do not take Brotli get what `gzip` sends."""

    @pytest.fixture
    def middleware(self) -> Brotli:
        pytest.importorskip("brotli")
        return Brotli(Brotli.Options())

    @pytest.fixture
    def examples(self) -> Sequence[MiddlewareExample]:
        wants = {
            b"gzip, br": b"gzip",
            b"*": b"gzip, br;q=0",
            b"br;q=1.0, gzip; q = 1": b"br;q=0.9, gzip; q = 1",
            b"gzip;q=0.0, *": b"gzip;q=0",
            b"br, deflate": b"",
        }

        def of_gzip(example: MiddlewareExample) -> MiddlewareExample:
            headers = [(name, wants.get(value, value)) for name, value in example.headers]
            return replace(example, headers=[each for each in headers if each[1] != b"br"])

        return [of_gzip(example) for example in gzip_examples()]


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        (b"gzip, deflate, br, zstd", b"br"),
        (b"br", b"br"),
        (b"BR;Q=0.5, gzip;q=0.5", b"br"),
        (b"br;q=0.5, gzip", b"gzip"),
        (b"br;q=0.9, gzip;q=0.1", b"br"),
        (b"br;q=0, gzip", b"gzip"),
        (b"br;q=2, gzip", b"gzip"),
        (b"br;q=nan, gzip;q=0.2", b"gzip"),
        (b"*", b"br"),
        (b"gzip;q=0, *", b"br"),
        (b"*;q=0.3, gzip;q=0.4", b"gzip"),
        (b"*;q=0, br", b"br"),
        (b"br;q=0, gzip;q=0", b""),
        (b"identity", b""),
    ],
)
def test_the_heavier_coding_is_sent(accepted: bytes, expected: bytes) -> None:
    pytest.importorskip("brotli")
    assert encoding(accepted) == expected


@pytest.mark.parametrize("body", [LONG, BIG], ids=["small", "big"])
def test_bodies_are_whole_and_smaller(body: bytes) -> None:
    brotli = pytest.importorskip("brotli")
    headers = [(b"accept-encoding", b"br")]
    got = exchange(
        Brotli(Brotli.Options()), headers=headers, reply=[body], reply_headers=[JSON, (b"etag", b'"a"')]
    )
    sent = b"".join(message["body"] for message in got.messages[1:])
    assert brotli.decompress(sent) == body
    assert int(got.header(b"content-length")) == len(sent) < len(body) / 10
    assert got.header(b"etag") == b'W/"a"'
    assert got.header(b"vary") == b"accept-encoding"


def test_streams_of_events_pass() -> None:
    pytest.importorskip("brotli")
    headers = [(b"accept-encoding", b"br")]
    got = exchange(Brotli(Brotli.Options()), headers=headers, reply=[LONG], reply_headers=[EVENTS])
    assert got.header(b"content-encoding") == b""


@pytest.mark.parametrize(("quality", "in_thread"), [(5, False), (6, True), (11, True)])
def test_slow_qualities_do_not_stop_the_server(
    quality: int, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("brotli")
    middleware = Brotli(Brotli.Options(quality=quality))
    encode, threads = middleware.encode, []

    def noting(body: bytes, coding: str) -> bytes:
        threads.append(threading.current_thread())
        return encode(body, coding)

    monkeypatch.setattr(middleware, "encode", noting)
    got = exchange(middleware, headers=[(b"accept-encoding", b"br")], reply=[LONG], reply_headers=[JSON])
    assert got.header(b"content-encoding") == b"br"
    assert [thread is not threading.main_thread() for thread in threads] == [in_thread]
