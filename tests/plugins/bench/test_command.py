"""`llmfw bench` against a server whose every figure is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.long  # judges by the clock
def test_a_steady_server_is_measured_correctly(metronome, measured):
    """The server sends a token every 10 ms."""
    server = metronome(delay=0.05, gap=0.01)
    found = measured(server, "single", "--scale", 0.25)
    assert found["itl_p50_ms"] == pytest.approx(10, abs=1)
    assert found["ttft_p50_ms"] == pytest.approx(50, abs=25)
    seconds = 0.05 + 127 * 0.01
    assert found["wall_s"] == pytest.approx(seconds, rel=0.2)
    assert found["output_tok_s"] == pytest.approx(128 / seconds, rel=0.2)
    assert found["output_tok_s"] == pytest.approx(found["output_tokens"] / found["wall_s"], abs=0.01)


@pytest.mark.parametrize(
    ("workload", "requests", "at_once", "prompt", "output"),
    [
        ("single", 4, 1, 128, 128),
        ("batch16", 48, 16, 256, 64),
        ("prefix", 48, 16, 544, 32),
        ("burst", 128, 128, 64, 32),
    ],
)
def test_each_workload_has_its_requests_and_lengths(
    metronome, measured, workload, requests, at_once, prompt, output
):
    server = metronome(waits_for=at_once)
    found = measured(server, workload)
    assert (found["requests"], found["failed"], found["short"]) == (requests, 0, 0)
    assert server.most_running == at_once
    assert found["prompt_tokens"] == requests * (prompt + 1)  # the server counts the beginning of the text
    assert found["output_tokens"] == requests * output


def test_multiturn_prompts_contain_earlier_turns(metronome, measured):
    server = metronome()
    found = measured(server, "multiturn", "--scale", 0.125)
    first, second = (body["prompt"] for body in server.bodies[-4:-2])
    said = "".join(f" t{i}" for i in range(48))
    assert second.startswith(first + said)
    assert len(second.split()) == 64 + 48 + 64
    assert (found["requests"], len(found["runs"][0]["ttft_p50_by_turn_ms"])) == (4, 4)


def test_chat_sends_conversations_as_messages(metronome, measured):
    server = metronome()
    found = measured(server, "multiturn", "--scale", 0.125, "--api", "chat")
    roles = [message["role"] for message in server.bodies[-1]["messages"]]
    assert roles == ["user", "assistant"] * 3 + ["user"]
    assert (found["failed"], found["output_tokens"]) == (0, 4 * 48)


def test_prefix_prompts_are_shared_within_a_run(metronome, bench):
    server = metronome()
    bench("--base-url", server.url, "--workload", "prefix", "--scale", 0.1, "--runs", 2)
    prefixes = {" ".join(body["prompt"].split()[:512]) for body in server.bodies[2:]}
    assert len(prefixes) == 3  # of the warm-up and of two runs


def test_no_prompt_is_sent_twice(metronome, bench):
    server = metronome()
    bench("--base-url", server.url, "--workload", "batch16", "--runs", 2, "--seed", 1)
    prompts = [body["prompt"] for body in server.bodies]
    assert len(set(prompts)) == len(prompts) == 2 + 16 + 2 * 48


def test_a_seed_repeats_the_prompts(metronome, measured):
    server = metronome()
    for _ in range(2):
        measured(server, "single", "--seed", 7)
    half = len(server.bodies) // 2
    first, second = ([b["prompt"] for b in bodies] for bodies in (server.bodies[:half], server.bodies[half:]))
    assert sorted(first) == sorted(second)


def test_prompt_length_is_calibrated_on_the_server(metronome, measured):
    server = metronome(tokens_per_word=2)
    found = measured(server, "batch16", "--scale", 0.1)
    assert found["prompt_tokens"] == 5 * 257


def test_token_ids_are_sent_unchanged(metronome, measured):
    server = metronome()
    found = measured(server, "single", "--prompt-mode", "ids")
    assert all(isinstance(token, int) for token in server.bodies[-1]["prompt"])
    assert (found["prompt_mode"], found["prompt_tokens"]) == ("ids", 4 * 128)


def test_exact_length_is_requested(metronome, measured):
    server = metronome()
    found = measured(server, "single")
    body = server.bodies[-1]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (128, 128, True)
    assert (found["exact_length"], body["stream_options"]) == (True, {"include_usage": True})


def test_refused_fields_are_left_out(metronome, measured):
    server = metronome(refuses=("ignore_eos", "min_tokens"))
    found = measured(server, "single")
    assert (found["exact_length"], found["failed"], found["short"]) == (False, 0, 0)
    assert "ignore_eos" not in server.bodies[-1]


def test_early_outputs_are_counted_as_short(metronome, measured):
    found = measured(metronome(stops_after=100), "single")
    assert (found["short"], found["output_tokens"]) == (4, 400)


def test_cached_tokens_are_summed_or_unknown(metronome, measured):
    assert measured(metronome(cached=30), "single")["cached_tokens"] == 4 * 30
    assert measured(metronome(), "single")["cached_tokens"] is None


def test_failed_requests_are_counted_and_excluded(metronome, bench):
    server = metronome(fails=(6,), breaks=(7,))  # 2 to calibrate, 2 to warm up, then 4 that count
    shown = bench("--base-url", server.url, "--workload", "single", "--runs", 1, "--json")
    found = json.loads(shown.stdout)
    assert (found["requests"], found["failed"], found["output_tokens"]) == (4, 2, 2 * 128)
    assert shown.exit_code == 1
    assert shown.stderr.splitlines()[-1] == (
        "Error: 2 of the requests failed, the first with: HTTP 500: out of paper"
    )


def test_the_table_has_one_row_per_workload(metronome, bench):
    shown = bench("--base-url", metronome().url, "--scale", 0.05, "--runs", 1)
    rows = [line.split("\t")[0] for line in shown.stdout.splitlines()]
    assert rows == ["workload", "single", "batch16", "prefix", "burst", "multiturn"]
    assert shown.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--workload", "sprint"], "unknown workload 'sprint'; known: single, batch16,"),
        (
            ["--base-url", "http://127.0.0.1:9"],
            "http://127.0.0.1:9/v1/models cannot be reached: Connection refused",
        ),
        (["--base-url", "http://127.0.0.1:9", "--model", "m"], "http://127.0.0.1:9 cannot be reached"),
        (["--url", "a-.invalid"], "http://a-.invalid/v1/models cannot be reached: "),
        (["--base-url", "no:sense"], "'no:sense' is not a URL"),
        (["--prompt-mode", "ids", "--api", "chat"], "--prompt-mode ids"),
    ],
)
def test_an_impossible_run_is_one_line(bench, arguments, named):
    shown = bench(*arguments)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert len(shown.stderr.splitlines()) == 1
    assert named in shown.stderr
    assert "Unknown error" not in shown.stderr


def test_a_failing_server_is_named(metronome, bench):
    server = metronome(fails=(1,))
    shown = bench("--base-url", server.url)
    assert (shown.exit_code, shown.stderr) == (
        1,
        f"Error: {server.url}/v1/completions: HTTP 500: out of paper\n",
    )


def test_a_server_without_usage_is_refused(metronome, bench):
    shown = bench("--base-url", metronome(usage=False).url)
    assert shown.exit_code == 1
    assert "no usage" in shown.stderr


def test_a_folder_without_tokenizer_is_named(metronome, bench, tmp_path: Path):
    shown = bench("--base-url", metronome().url, "--tokenizer", tmp_path)
    assert (shown.exit_code, shown.stderr) == (
        1,
        f"Error: --tokenizer {tmp_path}: no tokenizer.json in this folder\n",
    )
