"""Streams are read the same however the network cuts them, and errors are found in the forms servers use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.plugins.bench.reply import Reply, error_message, parse_stream

STREAM = (
    ': ping\r\n\r\ndata: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    'data: {"choices":[{"delta":{"content":"é"}}]}\n\ndata:{"choices":[{"delta":{"reasoning_content":"b"}}]}\n\n'
    'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
    'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,'
    '"prompt_tokens_details":{"cached_tokens":1}}}\n\ndata: [DONE]\n\n'
).encode()


def read(*reads: bytes) -> Reply:
    reply = Reply(wanted=2)
    parse_stream([(float(i), data) for i, data in enumerate(reads)], reply)
    return reply


@given(st.lists(st.integers(0, len(STREAM)), max_size=30).map(sorted))
def test_chunking_a_stream_gives_the_same_reply(cuts):
    edges = [0, *cuts, len(STREAM)]
    reply = read(*(STREAM[a:b] for a, b in pairwise(edges)))
    assert (reply.text, reply.error, len(reply.times)) == ("éb", None, 2)
    assert (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens) == (3, 2, 1)


def test_events_are_timed_by_their_last_read():
    end = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    reply = read(b'data: {"choices":[{"text":"a"}]}\n\ndata: {"cho', b'ices":[{"text":"b"}]}\n', b"\n" + end)
    assert reply.times == [0.0, 1.0]


def test_a_textless_stream_is_timed_by_choices():
    reply = read(b'data: {"choices":[{"text":""}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n')
    assert (reply.times, reply.error) == ([0.0], None)


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"<html>no</html>", "not a stream of events: <html>no</html>"),
        (b'data: {"error":"worker died"}\n\n', "error in the stream: worker died"),
        (b'data: {"error":{"message":"worker died"}}\n\n', "error in the stream: worker died"),
        (b"data: [1]\n\n", "an event is not a JSON object: [1]"),
        (b"", "the stream has no usage"),
    ],
)
def test_stream_errors_are_reported(stream, said):
    assert said in (read(stream).error or "")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"too long","type":"x"}}', "too long"),
        (b'{"error":"too long"}', "too long"),
        (b'{"detail":"too long"}', "too long"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (b'{"message":"too long"}', "too long"),
        (b"Internal\nServer Error", "Internal Server Error"),
        (b"x" * 400, "x" * 299 + "…"),
    ],
)
def test_error_bodies_are_read_in_all_forms(body, said):
    assert error_message(body) == said
