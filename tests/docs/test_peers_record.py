"""Peers are measured in turns, and a run that was cut goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def record() -> Iterator[ModuleType]:
    with benchmark_script("peers.record") as (module,):
        yield module


def order(steps):
    return [(step.workload, step.run, step.peer) for step in steps]


def test_each_run_starts_with_another_peer(record):
    """Before and after it the machine is measured."""
    assert order(record.steps("smol", 16, ["single", "burst"], 2, ["a", "b"])) == [
        (workload, run, peer)
        for workload in ("single", "burst")
        for run, peer in [(0, ""), (0, "a"), (0, "b"), (1, ""), (1, "b"), (1, "a"), (2, "")]
    ]


def test_an_interrupted_run_resumes_after_its_last_step(record, tmp_path: Path):
    whole = list(record.steps("smol", 16, ["single"], 2, ["a", "b"]))
    cut = record.Record(tmp_path / "peers.jsonl")
    for step in whole[:4]:
        cut.add("turn" if step.peer else "ceilings", step, output_tok_s=1.0)
    assert record.Record(tmp_path / "peers.jsonl").left(whole) == whole[4:]


def test_results_of_other_models_are_not_reused(record, tmp_path: Path):
    kept = record.Record(tmp_path / "peers.jsonl")
    for step in record.steps("smol", 16, ["single"], 1, ["a"]):
        kept.add("turn" if step.peer else "ceilings", step)
    for model, bits in (("q05", 16), ("smol", 8)):
        wanted = list(record.steps(model, bits, ["single"], 1, ["a"]))
        assert kept.left(wanted) == wanted


def test_a_lost_peer_skips_only_that_workload(record, tmp_path: Path):
    kept = record.Record(tmp_path / "peers.jsonl")
    whole = list(record.steps("smol", 16, ["single", "burst"], 2, ["slow", "b"]))
    kept.add("lost", whole[1], reason="not ended after 600 s")
    left = [(step.workload, step.run) for step in kept.left(whole) if step.peer == "slow"]
    assert left == [("burst", 0), ("burst", 1)]


def test_a_file_keeps_its_scale(record, tmp_path: Path):
    record.Record(tmp_path / "peers.jsonl").begin(1.0)
    record.Record(tmp_path / "peers.jsonl").begin(1.0)
    with pytest.raises(ValueError, match=r"is of a run with --scale 1, not 0\.1; name another file by --out"):
        record.Record(tmp_path / "peers.jsonl").begin(0.1)


def test_an_unrelated_file_is_refused(record, tmp_path: Path):
    (tmp_path / "cpu.json").write_text('{"kind": "begin"}\n{"models": {}}\n')
    with pytest.raises(ValueError, match=r"cpu\.json, line 2: not a line of a measurement"):
        record.Record(tmp_path / "cpu.json")
