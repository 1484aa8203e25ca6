"""`llmfw simulate`: what it prints, and what it says where it cannot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.plugins.simulator.profile import load_profile
from llmfw.plugins.simulator.profiles import NAMED

from .traces import line, many, write

FIGURES = {
    "hit_rate",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "output_tok_s",
    "retractions",
    "longest_wait_s",
    "fairness",
}
BESIDE = {"policy", "settings", "requests", "refused", "makespan_s", "most_overtaken"}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.jsonl", many(40))


@pytest.fixture
def simulate() -> Callable[..., Result]:
    """Return a function that runs `llmfw simulate` with the given arguments."""
    return lambda *arguments: CliRunner().invoke(build_cli(), ["simulate", *map(str, arguments)])


def test_json_has_one_object_per_policy(simulate, trace):
    shown = simulate(trace, "--policy", "fcfs", "--policy", "lpm", "--json", "--speed", "50")
    found = [json.loads(text) for text in shown.stdout.splitlines()]
    assert [each["policy"] for each in found] == ["fcfs", "lpm"]
    assert all(each.keys() == FIGURES | BESIDE for each in found)
    assert found[0]["requests"] == 40
    assert found[0]["settings"]["speed"] == 50


@pytest.mark.parametrize(
    ("recorded", "options", "used"), [(4, [], 4), (None, [], 16), (4, ["--page-size", "8"], 8)]
)
def test_a_recording_is_replayed_with_its_page_size(simulate, tmp_path, recorded, options, used):
    lines = [line(0, [1, 2], 5, page_size=recorded), line(1, [1, 3], 5, page_size=recorded)]
    [text] = simulate(write(tmp_path / "t.jsonl", lines), "--json", *options).stdout.splitlines()
    assert json.loads(text)["settings"]["page_size"] == used


def test_recordings_with_several_page_sizes_need_the_option(simulate, tmp_path):
    mixed = write(tmp_path / "t.jsonl", [line(0, [1], 5, page_size=1), line(1, [2], 5, page_size=16)])
    shown = simulate(mixed)
    assert shown.exit_code == 1
    assert "recorded with pages of 1, 16 tokens; choose one with --page-size" in shown.stderr
    assert simulate(mixed, "--page-size", "16").exit_code == 0


def test_equal_commands_print_equal_output(simulate, trace):
    arguments = (
        trace,
        "--json",
        "--max-total-tokens",
        "640",
        "--chunked-prefill-size",
        "64",
        "--replicas",
        "2",
        "--speed",
        "1000",
    )
    assert simulate(*arguments).stdout == simulate(*arguments).stdout


def test_the_table_has_one_row_per_policy(simulate, tmp_path):
    """Refused requests are reported."""
    path = write(tmp_path / "t.jsonl", [line(0, [1, 2], 2), line(1, list(range(50)), 2)])
    shown = simulate(path, "--policy", "fcfs", "--policy", "lpm", "--max-total-tokens", "64", "--infinite")
    assert [line.split("\t")[0] for line in shown.stdout.splitlines()] == ["policy", "fcfs", "lpm"]
    assert "Hit rate of an infinite cache: 0.000\n1 of 2 requests are larger" in shown.stderr


def test_the_table_compares_routers(simulate, trace):
    shown = simulate(trace, "--replicas", "2", "--router", "load", "--router", "prefix", "--speed", "50")
    cells = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [row[:3] for row in cells] == [
        ["policy", "router", "replicas"],
        ["lpm", "load", "2"],
        ["lpm", "prefix", "2"],
    ]


def test_an_objective_finds_the_replicas(simulate, trace):
    """And shows what is left of it with one fewer."""
    arguments = (
        trace,
        "--json",
        "--speed",
        "1e5",
        "--chunked-prefill-size",
        "32",
        "--max-running-requests",
        "4",
    )
    alone = json.loads(simulate(*arguments).stdout)
    limit = f"ttft_p95={alone['ttft_p95_ms'] / 3:.3f}ms"
    shown = simulate(*arguments, "--slo", limit)
    assert shown.exit_code == 0, shown.output
    found, fewer = [json.loads(text) for text in shown.stdout.splitlines()]
    assert found["ttft_p95_ms"] <= alone["ttft_p95_ms"] / 3 < fewer["ttft_p95_ms"]
    assert found["settings"]["replicas"] == fewer["settings"]["replicas"] + 1 >= 2


def test_an_objective_out_of_reach_is_an_error(simulate, trace):
    shown = simulate(trace, "--slo", "ttft_p50=1ms", "--replicas", "2", "--speed", "50")
    assert (shown.exit_code, shown.stdout) == (1, "")
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("Error: 2 replicas do not meet --slo: ttft_p50 is ")
    assert last.endswith("raise --replicas, the largest number to try")


def test_refused_requests_need_larger_engines(simulate, trace):
    """More replicas do not help a request that fits into none."""
    shown = simulate(trace, "--slo", "ttft_p50=1s", "--replicas", "2", "--max-total-tokens", "32")
    assert (shown.exit_code, shown.stdout) == (1, "")
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("Error: 2 replicas do not meet --slo: ")
    assert last.endswith("do not fit into an engine; raise --max-total-tokens")


def test_a_failing_router_is_reported_without_figures(simulate, trace, install_plugin):
    folder = install_plugin(
        "lost", "@hookimpl\ndef register_routers(register):\n    register('lost', 'lost_router:Lost')\n"
    )
    (folder / "lost_router.py").write_text(
        "from llmfw.core import Router\n"
        "class Lost(Router):\n"
        "    def choose(self, request, replicas):\n"
        "        return None\n"
    )
    shown = simulate(trace, "--router", "lost", "--replicas", "2", "--json")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "router 'lost' failed: choose() returned a NoneType" in shown.stderr


def test_json_contains_the_infinite_bound_on_request(simulate, trace):
    (found,) = [json.loads(text) for text in simulate(trace, "--json", "--infinite").stdout.splitlines()]
    assert found["hit_rate"] <= found["infinite_hit_rate"] < 1


def test_a_profile_of_zeros_has_no_fairness(simulate, trace, tmp_path):
    profile = tmp_path / "zero.json"
    profile.write_text('{"name": "zero", "host": 0, "points": [[1, 0], [2, 0]]}')
    [found] = map(json.loads, simulate(trace, "--profile", profile, "--json").stdout.splitlines())
    assert (found["fairness"], found["ttft_p99_ms"], found["refused"]) == (None, 0.0, 0)


def test_the_first_requests_can_be_replayed_separately(simulate, trace):
    assert json.loads(simulate(trace, "--limit", "7", "--json").stdout)["requests"] == 7


def test_an_external_policy_has_its_own_options(simulate, trace, install_plugin):
    folder = install_plugin(
        "stack",
        "@hookimpl\ndef register_schedule_policies(register):\n    register('lifo', 'lifo_policy:Lifo')\n",
    )
    (folder / "lifo_policy.py").write_text(
        "from llmfw.core.interfaces.policy import Ordering, SchedulePolicy\n"
        "class Lifo(SchedulePolicy):\n"
        "    class Options(SchedulePolicy.Options, frozen=True):\n"
        "        reverse: bool = True\n"
        "    def order(self, waiting, figures):\n"
        "        return Ordering.by(-waiting.arrival if self.options.reverse else waiting.arrival)\n"
    )
    policies = ("--policy", "fcfs", "--policy", "lifo", "--policy", "lifo:reverse=false")
    shown = simulate(trace, *policies, "--json", "--speed", "1e6", "--max-running-requests", 4)
    fcfs, lifo, fifo = (json.loads(text) for text in shown.stdout.splitlines())
    assert (fcfs["most_overtaken"], fifo["most_overtaken"]) == (0, 0)
    assert lifo["most_overtaken"] > 20
    shown = simulate(trace, "--policy", "lifo", "-o", "policy.reverse=false", "--json", "--speed", "1e6")
    assert json.loads(shown.stdout)["most_overtaken"] == 0


def test_a_failing_policy_is_reported_without_figures(simulate, trace, install_plugin):
    folder = install_plugin(
        "broken",
        "@hookimpl\ndef register_schedule_policies(register):\n    register('bad', 'bad_policy:Bad')\n",
    )
    (folder / "bad_policy.py").write_text(
        "from llmfw.core.interfaces.policy import Ordering, SchedulePolicy\n"
        "class Bad(SchedulePolicy):\n"
        "    def order(self, waiting, figures):\n"
        "        return Ordering(waiting.arrival[:0])\n"
    )
    shown = simulate(trace, "--policy", "bad", "--json")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "policy 'bad' failed: order() returned 0 places for 1 requests" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--eviction", "fifo"], "unknown eviction rule 'fifo'; known: "),
        (["--router", "nearest"], "unknown router 'nearest'; known: "),
        (["-o", "router.speed=3"], "router 'prefix' has no option 'speed'"),
        (["--slo", "ttft=1"], "--slo 'ttft=1' is not METRIC=LIMIT"),
        (["--policy", "fastest"], "unknown policy 'fastest'; known: "),
        (["--policy", "fcfs:speed=3"], "policy 'fcfs' has no option 'speed'"),
        (["--policy", "fcfs:speed"], "'speed' is not key=value"),
        (["-o", "policy.speed=3", "--policy", "fcfs"], "policy 'fcfs' has no option 'speed'"),
        (["--profile", "nothing"], "there is no profile 'nothing', nor a file of that name"),
    ],
)
def test_an_impossible_run_is_one_line(simulate, trace, arguments, told):
    shown = simulate(trace, *arguments)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert len(shown.stderr.splitlines()) == 1
    assert told in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give a TRACE to replay, or --fit MODEL"),
        (["--fit", "demo"], "--fit MODEL and --save FILE go together"),
        (["t.jsonl", "--fit", "demo", "--save", "p"], "--fit takes no trace"),
        (
            ["--chunked-prefill-size", "3", "--fit", "demo", "--save", "p"],
            "--fit takes no --chunked-prefill-size",
        ),
        (["t.jsonl", "-o", "speed=3"], "'speed=3' is not policy.key=value"),
        (["t.jsonl", "-o", "sampler.a=3"], "router.key=value or eviction.key=value"),
        (["t.jsonl", "-o", "policy.a=1", "-o", "policy.a=2"], "'policy.a' is given twice"),
    ],
)
def test_a_meaningless_command_line_is_a_usage_error(simulate, arguments, told):
    shown = simulate(*arguments)
    assert shown.exit_code == 2
    assert told in shown.stderr


def test_a_missing_trace_is_named(simulate, tmp_path):
    shown = simulate(tmp_path / "none.jsonl")
    assert (shown.exit_code, shown.stderr) == (
        1,
        f"Error: {tmp_path / 'none.jsonl'} cannot be read: No such file or directory\n",
    )


def test_the_help_names_the_profiles(simulate):
    assert all(name in simulate("--help").stdout for name in NAMED)


def test_a_plot_is_written(simulate, trace, tmp_path):
    pytest.importorskip("matplotlib")
    shown = simulate(trace, "--policy", "fcfs", "--policy", "lpm", "--plot", tmp_path / "p.png")
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_plots_without_matplotlib_are_refused_before_replaying(simulate, trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = simulate(trace, "--plot", "p.png")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "pip install 'llmfw-engine[plot]'" in shown.stderr


@pytest.mark.slow
def test_a_measured_profile_can_be_used(simulate, trace, tmp_path, monkeypatch):
    from llmfw.plugins.simulator import measure

    monkeypatch.setattr(measure, "LONG_S", 0.01)
    shown = simulate("--fit", "demo", "--fit-rounds", "1", "--save", tmp_path / "demo.json")
    assert shown.exit_code == 0, shown.output
    profile = load_profile(tmp_path / "demo.json")
    assert profile.name == "demo"
    assert profile.host > 0
    shown = simulate(trace, "--profile", tmp_path / "demo.json", "--json")
    assert json.loads(shown.stdout)["settings"]["profile"] == str(tmp_path / "demo.json")
