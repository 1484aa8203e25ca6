"""The table of the GPU script says what was measured, what was missed and what failed."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from .gpu_script import gpu_script


@pytest.fixture(scope="module")
def lines() -> Iterator[ModuleType]:
    with gpu_script("lines") as (module,):
        yield module


def test_a_line_shows_its_ratio_and_verdict(lines):
    line = lines.Line("decode 1", tok_s=200.0, ms=5.0, limit_ms=3.49, goal="decode 1")
    assert line.cells() == ["decode 1", "200", "5.000", "3.490", "0.70", "0.70 MISSED", ""]


@pytest.mark.parametrize(("ms", "verdict"), [(4.0, "goal"), (4.9, "met"), (6.0, "MISSED")])
def test_a_ratio_is_compared_with_its_goal(lines, ms, verdict):
    assert lines.Line("x", ms=ms, limit_ms=3.49, goal="decode 1").must == f"0.70 {verdict}"


@pytest.mark.parametrize(("ms", "verdict"), [(0.05, "goal"), (0.2, "met"), (0.4, "MISSED")])
def test_idle_time_is_compared_with_its_bound(lines, ms, verdict):
    assert lines.Line("x", ms=ms, most_ms=lines.Goal(0.3, 0.1)).must == f"≤ 0.30 ms {verdict}"


def test_without_rates_there_is_no_verdict(lines):
    assert lines.Line("x", ms=4.0, goal="decode 1").cells() == ["x", "", "4.000", "", "", "", ""]


def test_lines_survive_their_file(lines, tmp_path):
    written = [lines.Line("a", ms=1.0, most_ms=lines.Goal(2, 1)), lines.Line("b", failed=True, note="why")]
    for line in written:
        lines.write_line(tmp_path / "x.jsonl", line)
    assert lines.read_lines(tmp_path / "x.jsonl") == written
    assert lines.read_lines(tmp_path / "none.jsonl") == []


def test_table_separators_are_removed_from_notes(lines):
    assert lines.Line("x", note="a|b\nc", failed=True).cells()[-1] == "FAILED: a/b c"


class MissingJITCacheError(RuntimeError):
    """As FlashInfer's."""


def test_only_uncompiled_kernels_are_no_failure(lines):
    missing = lines.line_of_error("x", MissingJITCacheError("batch_decode\nmore"))
    assert (missing.failed, missing.note) == (False, "not compiled ahead: batch_decode")
    other = lines.line_of_error("x", RuntimeError())
    assert (other.failed, other.note) == (True, "RuntimeError: no message")


def wrapped() -> RuntimeError:
    """As attention_flashinfer wraps it."""
    missing = MissingJITCacheError("compiling is disabled")
    missing.spec = SimpleNamespace(name="batch_decode")
    error = RuntimeError("kernels cannot be loaded")
    error.__cause__ = missing
    return error


def in_context() -> ValueError:
    error = ValueError("while it was handled")
    error.__context__ = wrapped()
    return error


QUOTED = RuntimeError("no backend serves it: flashinfer: MissingJITCacheError: batch_decode\nmore")


@pytest.mark.parametrize("error", [wrapped(), in_context(), QUOTED], ids=["cause", "context", "text"])
def test_a_wrapped_missing_kernel_is_recognized(lines, error):
    line = lines.line_of_error("x", error)
    assert (line.failed, line.note) == (False, "not compiled ahead: batch_decode")


def test_the_summary_names_failed_stages_and_missed_bounds(lines):
    slow = lines.Line("decode 1", ms=10.0, limit_ms=1.0, goal="decode 1")
    by_stage = {"decode": [slow], "server": [lines.Line("server", failed=True)]}
    assert lines.summary(by_stage) == "1 stages failed: server\n0 of 1 bounds met; missed: decode 1"
    assert lines.summary({"machine": [lines.Line("GPU")]}) == "0 stages failed\n0 of 0 bounds met"
