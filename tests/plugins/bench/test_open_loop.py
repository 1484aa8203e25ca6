"""Requests at given times: `--rate` and `--trace`."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.plugins.bench.open_loop import poisson


@given(st.integers(0, 2**32), st.floats(0.1, 1000), st.floats(0.01, 10))
def test_poisson_times_ascend_within_the_duration(seed: int, rate: float, seconds: float) -> None:
    times = poisson(random.Random(seed), rate, seconds)
    assert times == sorted(times)
    assert all(0 <= time < seconds for time in times)


def test_poisson_times_have_their_rate_and_spread() -> None:
    times = poisson(random.Random(0), 50, 1000)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert len(times) == pytest.approx(50_000, rel=0.02)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)  # exponential: the deviation is the mean


def test_requests_do_not_wait_for_replies(metronome, measured):
    """Of 50 requests in half a second, 20 run at once, which one at a time would never reach."""
    server = metronome(delay=0.3)
    found = measured(server, "single", "--rate", 100, "--duration", 0.5, "--seed", 1)
    assert server.most_running >= 20
    assert (found["rate"], found["failed"]) == (100, 0)
    assert found["requests"] == len(server.bodies) - 4  # two to calibrate, two to warm up
    assert found["late_p99_ms"] >= 0


def test_several_rates_are_several_results(metronome, bench):
    shown = bench(
        *(
            "--url",
            metronome().url,
            "--workload",
            "single",
            "--rate",
            50,
            "--rate",
            100,
            "--duration",
            0.1,
            "--json",
        )
    )
    results = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [result["rate"] for result in results] == [50, 100]


def test_a_conversation_goes_on_turn_by_turn(metronome, measured):
    server = metronome()
    found = measured(server, "multiturn", "--rate", 20, "--duration", 0.2, "--seed", 3)
    assert found["requests"] % 4 == 0
    assert len(found["runs"][0]["ttft_p50_by_turn_ms"]) == 4


def trace(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def line(ms: int, length: int, blocks: list[int], output: int = 3) -> dict[str, Any]:
    return {"timestamp": ms, "input_length": length, "output_length": output, "hash_ids": blocks}


def run_trace(server: Any, bench: Any, path: Path, *arguments: object) -> dict[str, Any]:
    shown = bench("--url", server.url, "--trace", path, "--block-size", 16, "--json", *arguments)
    assert shown.exit_code == 0, shown.stderr
    return dict(json.loads(shown.stdout))


def test_a_trace_has_its_lengths_and_shared_prefixes(metronome, bench, tmp_path):
    path = trace(tmp_path, line(1000, 24, [7, 8]), line(1050, 30, [7, 9], output=5), line(1100, 16, [7]))
    server = metronome()
    found = run_trace(server, bench, path, "--seed", 5)
    first, second, third = (body["prompt"].split() for body in server.bodies[-3:])
    assert [len(first), len(second), len(third)] == [24, 30, 16]
    assert first[:16] == second[:16] == third
    assert first[16:] != second[16:24]
    assert [body["max_tokens"] for body in server.bodies[-3:]] == [3, 5, 3]
    assert (found["workload"], found["requests"], found["rate"]) == ("trace.jsonl", 3, None)
    assert found["runs"][0]["wall_s"] >= 0.1


def test_a_trace_is_stretched_to_a_rate(metronome, bench, tmp_path):
    path = trace(tmp_path, *(line(second * 1000, 16, [second]) for second in range(11)))
    found = run_trace(metronome(), bench, path, "--rate", 110)
    assert found["requests"] == 11
    assert 10 / 110 <= found["runs"][0]["wall_s"] < 2


def test_a_duration_cuts_the_trace(metronome, bench, tmp_path):
    path = trace(tmp_path, *(line(second * 1000, 16, [second]) for second in range(100)))
    assert run_trace(metronome(), bench, path, "--rate", 100, "--duration", 0.205)["requests"] == 21


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--duration", "5"], "--duration needs --rate or --trace"),
        (["--rate", "1", "--scale", "2"], "--scale is for a fixed number of requests"),
        (["--rate", "1e6", "--duration", "1e6"], "more than 200,000 requests"),
        (["--trace", "absent.jsonl"], "--trace absent.jsonl cannot be read"),
        (["--trace", "{trace}", "--workload", "single"], "--trace and --workload exclude each other"),
        (["--trace", "{trace}", "--rate", "2"], "all requests come at once; leave out --rate"),
        (["--trace", "{trace}", "--block-size", "8"], "hash_ids has 1 blocks"),
    ],
)
def test_an_impossible_load_is_one_line(metronome, bench, tmp_path, arguments, named):
    path = str(trace(tmp_path, line(0, 16, [1])))
    url = metronome().url
    block = [] if "--block-size" in arguments else ["--block-size", "16"]
    shown = bench("--url", url, *block, *(each.replace("{trace}", path) for each in arguments))
    assert shown.exit_code == 1
    assert named in shown.stderr.splitlines()[-1]
    assert "Traceback" not in shown.stderr
