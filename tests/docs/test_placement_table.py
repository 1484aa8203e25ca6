"""Turns count where the machine's cores were when they began, and had stayed."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from .benchmark_script import MACHINE, benchmark_script

WHERE = {"model": "smol", "bits": 16, "workload": "single"}
LINES = [
    {"kind": "begin", "scale": 0.25, "machine": MACHINE, "versions": {}, "absent": {}},
    {"kind": "model", "model": "smol", "shape": "a-shape", "all": 10**9, "head": 10**8},
    {"kind": "ceilings", **WHERE, "peer": "", "run": 0, "read_gb_s": 7, "f32_tflop_s": 1, "bf16_tflop_s": 9},
]


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    with benchmark_script("placement_table") as (module,):
        yield module


def turn(peer: str, rate: float, ways: list[float]) -> dict[str, Any]:
    return {"kind": "turn", **WHERE, "peer": peer, "run": 0, "output_tok_s": rate, "memory": [40.0, 42.0]} | (
        {"cores_ns": ways} if ways else {}
    )


def test_each_placement_has_its_medians_and_ratios(table):
    turns = [turn("llmfw", rate, [40.0, 41.0]) for rate in (10.0, 12.0, 14.0)]
    turns += [turn("slow", 6.0, [39.0, 60.0]), turn("llmfw", 30.0, [210.0, 205.0])]
    shown = [
        line for line in table.text([*LINES, *turns]).splitlines() if line.startswith(("| near", "| apart"))
    ]
    assert shown == [
        "| near | **llmfw** | 3 | 41 | 12.0 (11.0–13.0) | 59% |  |",
        "| near | slow | 1 | 41 | 6.0 (6.0) | 29% | 2.00 |",
        "| apart | **llmfw** | 1 | 41 | 30.0 (30.0) | 146% |  |",
    ]


@pytest.mark.parametrize("ways", [[40.0, 210.0], []])
def test_turns_with_unknown_placement_are_only_counted(table, ways):
    text = table.text([*LINES, turn("llmfw", 10.0, ways)])
    assert "Of 1 turns, 1 started with one" in text
    assert "| near" not in text
