"""What a trace says is what is replayed; what is wrong with it is told by file, line and field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llmfw.plugins.simulator.bounds import infinite_hit_rate, lru_hit_rate
from llmfw.plugins.simulator.errors import SimulatorError
from llmfw.plugins.simulator.tokens import END, output_of, prompt_of
from llmfw.plugins.simulator.trace import TraceRequest, read_trace

from .traces import line, read, write

MOONCAKE = {"timestamp": 27482, "input_length": 700, "output_length": 52, "hash_ids": [46, 2353]}


def tokens_of(request: TraceRequest) -> np.ndarray:
    """Return prompt and output."""
    return np.concatenate([prompt_of(request), np.array(output_of(request), dtype=np.int32)])


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Return how many leading tokens are equal."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def test_mooncake_lines_have_512_token_blocks(tmp_path):
    (request,) = read(tmp_path, [MOONCAKE])
    assert (request.prompt_len, request.output_len, request.block_size) == (700, 52, 512)
    tokens = tokens_of(request)
    assert (len(tokens), tokens.dtype) == (752, np.int32)
    assert len(set(tokens[:512])) == len(set(tokens[512:700])) == 1


def test_equal_ids_are_equal_prefixes(tmp_path):
    lines = [line(0, [7, 8, 9], 4), line(1, [7, 8, 10], 4), line(2, [8], 4)]
    a, b, c = (tokens_of(request)[: request.prompt_len] for request in read(tmp_path, lines))
    assert (common(a, b), common(a, c)) == (32, 0)


def test_unknown_outputs_match_nothing(tmp_path):
    a, b = (tokens_of(request) for request in read(tmp_path, [line(0, [7], 16), line(1, [7], 16)]))
    assert common(a, b) == 16
    assert not set(a[16:]) & set(b)


def test_prompts_continue_known_outputs(tmp_path):
    first = line(0, [1, 99], 20, input_length=20, output_hash_ids=[2, 98])
    second = line(1, [1, 2, 3], 4)
    a, b = (tokens_of(request) for request in read(tmp_path, [first, second]))
    assert common(a, b) == 32


def test_short_outputs_end_with_the_end_token(tmp_path):
    short, full = read(tmp_path, [line(0, [1], 3, max_tokens=9), line(0, [1], 3, max_tokens=3)])
    assert tokens_of(short)[-1] == END != tokens_of(full)[-1]


def test_requests_are_sorted_and_start_at_zero(tmp_path):
    trace = read(tmp_path, [line(2500, [1], 1), line(500.25, [2], 1)])
    assert [(request.number, request.arrival_s) for request in trace] == [(0, 0.0), (1, 1.99975)]
    assert trace[0].blocks != trace[1].blocks


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"input_length": "many"}, "Expected `int`, got `str` - at `$.input_length`"),
        ({"input_length": 0}, "`int` >= 1 - at `$.input_length`"),
        ({"timestamp": None}, "`$.timestamp`"),
        ({"timestamp": 1e308}, "`$.timestamp`"),
        ({"timestamp": -1e308}, "`$.timestamp`"),
        ({"priority": 10**30}, "`$.priority`"),
        ({"priority": -(2**63)}, "`$.priority`"),
        ({"hash_ids": [1]}, "hash_ids has 1 blocks; input_length 700 has 2 of 512 tokens"),
        ({"output_hash_ids": [1, 2]}, "output_hash_ids has 2 blocks"),
        ({"max_tokens": 3}, "max_tokens is 3, less than output_length 52"),
        ({"block_size": 0}, "`$.block_size`"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path, change, told):
    path = write(tmp_path / "t.jsonl", [MOONCAKE, MOONCAKE | change])
    with pytest.raises(SimulatorError) as caught:
        read_trace(path)
    assert f"{path}:2: " in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no request"), ("{", "1 is not JSON"), ("{}", "missing required field `timestamp`")],
)
def test_invalid_traces_are_refused(tmp_path, text, told):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(SimulatorError, match=told):
        read_trace(tmp_path / "t.jsonl")


def test_a_device_is_refused():
    with pytest.raises(SimulatorError, match="/dev/zero is a device, which has no end"):
        read_trace(Path("/dev/zero"))


def test_only_lines_up_to_the_limit_are_read(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps(MOONCAKE) + "\nnonsense")
    assert len(read_trace(tmp_path / "t.jsonl", limit=1)) == 1


def test_bounds_equal_hand_made_traces(tmp_path):
    trace = read(tmp_path, [line(0, [1, 2], 1), line(1, [3, 4], 1), line(2, [1, 2], 1), line(3, [1, 5], 1)])
    assert infinite_hit_rate(trace) == (31 + 16) / 128
    assert lru_hit_rate(trace, 48) == (16 + 16) / 128  # the second prompt has driven out the first one's end
    assert lru_hit_rate(trace, 16) == 16 / 128
