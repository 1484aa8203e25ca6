"""A server that does not end its turn costs that turn and no more; one whose memory changed its rate is repeated."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with benchmark_script("bench_peers", "turns") as (module, turns):
        module.turns = turns
        yield module


class Started:
    """A server that need not be started."""

    name = url = model = ""
    bench = ()

    def cpu_seconds(self) -> float:
        return 0.0


def turns_of(bench: ModuleType, client: Path, server: Started, limit: float | None = None, read_memory=None):
    return bench.turns.Turns(client, [server], Path(), 1.0, 1.0, 0.0, limit, read_memory)


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A command in place of `llmfw`, which waits as long as the workload's name says."""
    command = tmp_path / "llmfw"
    command.write_text('#!/bin/sh\nexec sleep "$5"\n')
    command.chmod(0o755)
    return command


def test_a_turn_ends_at_its_limit(bench, client):
    server = Started()
    with pytest.raises(RuntimeError, match=r"30 on : not ended after 0 s"):
        turns_of(bench, client, server, limit=0.05).take(server, "30", 0)


def test_a_turn_repeats_until_memory_is_steady(bench, tmp_path: Path):
    client = tmp_path / "llmfw"
    client.write_text(
        """#!/bin/sh\nsleep 0.05; echo '{"exact_length": true, "runs": [{"output_tok_s": 1, "failed": 0, "short": 0}]}'\n"""
    )
    client.chmod(0o755)
    rates = iter([80.0, 40.0, 40.0, 41.0, 7.0])
    turns = turns_of(bench, client, Started(), read_memory=lambda: next(rates))
    found = turns.take(turns.servers[0], "single", 0)
    assert (found["memory"], found["unsteady"], found["seed"]) == ([40.0, 41.0], False, 1)
    assert "cores_ns" not in found
    always = iter([80.0, 40.0] * bench.turns.ATTEMPTS)
    turns.read_memory = lambda: next(always)
    ways = iter([40.0, 210.0] * bench.turns.ATTEMPTS)
    turns.core_distance = lambda: next(ways)
    found = turns.take(turns.servers[0], "single", 0)
    assert (found["unsteady"], found["cores_ns"]) == (True, [40.0, 210.0])


def test_a_peer_losing_a_workload_is_restarted(bench, client, tmp_path: Path):
    """It is not measured in that workload again."""

    class Field:
        def __init__(self):
            self.servers = {"slow": Started()}
            self.restarted = []

        def start(self, name):
            self.restarted.append(name)

        def tidy(self, text):
            return text

    record, field = bench.Record(tmp_path / "peers.jsonl"), Field()
    turns = turns_of(bench, client, field.servers["slow"], limit=0.05)
    for step in [bench.Step("smol", 16, "30", run, "slow") for run in (0, 1)]:
        bench.take(step, field, turns, record)
    assert [(line["run"], line["reason"]) for line in record.of("lost")] == [
        (0, "30 on : not ended after 0 s")
    ]
    assert field.restarted == ["slow"]


def test_the_file_contains_no_local_paths(bench, tmp_path: Path):
    told = bench.tidy(f"{tmp_path}/peers/x/bin/serve {bench.ROOT}/.bench/model", tmp_path / "peers")
    assert told == ".peers/x/bin/serve .bench/model"


def test_a_page_can_be_rebuilt_from_the_file(bench, tmp_path: Path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- peers: begin -->\nold\n<!-- peers: end -->\n")
    options = argparse.Namespace(page=page, out=tmp_path / "none.jsonl", only_page=True)
    monkeypatch.setattr(bench, "parse_arguments", lambda: options)
    bench.main()
    assert page.read_text().splitlines()[1] == "Nothing has been measured yet."
