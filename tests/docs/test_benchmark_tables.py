"""The comparison's tables say what its results say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .benchmark_script import FOLDER, MACHINE, benchmark_script

VERSIONS = {"torch": "2", "transformers": "5"}


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    with benchmark_script("tables") as (module,):
        yield module


def turn(server: str, rate: float, **other: float) -> dict[str, object]:
    latencies = {f"{kind}_p{percent}_ms": rate for kind in ("ttft", "itl") for percent in (50, 99)}
    counts = {"requests": 4, "failed": 0, "short": 0, "foreign_cpu": 0.01}
    return {"server": server, "output_tok_s": rate, **latencies, **counts, **other}


def test_a_row_holds_medians_ranges_and_ratios(tables):
    rates = [(10, 5), (40, 10), (60, 20)]
    turns = [turn(n, r) for pair in rates for n, r in zip((tables.OURS, tables.PEER), pair, strict=True)]
    *_, row = tables.model_table({"single": turns})
    assert row == (
        "| single | 40.0 (10.0–60.0) | 10.0 (5.0–20.0) | 3.00 (2.00–4.00) "
        "| 40.0 / 40.0 | 10.0 / 10.0 | 40.0 / 40.0 | 10.0 / 10.0 | 1.0% |"
    )


def test_failed_and_short_requests_have_a_note(tables):
    lines = tables.model_table({"single": [turn(tables.OURS, 1), turn(tables.PEER, 1, failed=1, short=2)]})
    assert lines[-1] == "- single, transformers serve: of 4 requests 1 failed and 2 ended early."


def test_tables_replace_the_text_between_markers(tables, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    machine = MACHINE | {tables.OURS: VERSIONS, tables.PEER: VERSIONS}
    data = tmp_path / "data" / "cpu.json"
    data.parent.mkdir()
    data.write_text(json.dumps({"machine": machine, "scale": 1, "models": {}}))
    tables.write_tables(data, page)
    before, *middle, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert middle[1].startswith("2026-01-01, commit abc, Z80, 1 cores")
    assert middle[-2].endswith("[cpu.json](data/cpu.json).")


def test_a_page_without_markers_is_refused(tables, tmp_path: Path):
    (tmp_path / "page.md").write_text("no markers")
    with pytest.raises(ValueError, match="has no <!-- tables: begin -->"):
        tables.write_tables(tmp_path / "cpu.json", tmp_path / "page.md")


def test_the_project_page_has_the_markers(tables):
    text = (FOLDER.parent / "benchmarks.md").read_text(encoding="utf-8")
    assert text.index(tables.BEGIN) < text.index(tables.END)
