"""Files of results: written, shown again, compared and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfw.plugins.bench.errors import BenchError
from llmfw.plugins.bench.reply import Reply
from llmfw.plugins.bench.results_file import check_output, write_results
from llmfw.plugins.bench.runner import Run
from llmfw.plugins.bench.timeline import timeline_of


@pytest.fixture
def results(metronome: Any, bench: Any, tmp_path: Path) -> Path:
    """Return the results of a sweep of two rates."""
    path = tmp_path / "before.json"
    rates = ("--rate", 50, "--rate", 100, "--duration", 0.2)
    shown = bench(
        "--url", metronome().url, "--workload", "single", *rates, "--slo", "ttft=1e6", "--output", path
    )
    assert shown.exit_code == 0, shown.stderr
    return path


def test_results_are_shown_again(results: Path, bench: Any) -> None:
    shown = bench("--results", results)
    header, first, second = (line.split("\t") for line in shown.stdout.splitlines())
    assert header[:4] == ["workload", "rate", "goodput", "req/s"]
    assert (first[:2], second[:2]) == (["single", "50"], ["single", "100"])
    assert first[2] == first[3]  # all requests met the objective


def test_results_are_shown_as_json(results: Path, bench: Any) -> None:
    shown = bench("--results", results, "--json")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == json.loads(results.read_text())[
        "results"
    ]
    refused = bench("--results", results, "--baseline", results, "--json")
    assert (refused.exit_code, refused.stdout) == (1, "")


@pytest.mark.parametrize("option", [("--rate", "3"), ("--output", "x.json"), ("--workload", "all")])
def test_shown_results_refuse_measuring_options(results: Path, bench: Any, option: tuple[str, str]) -> None:
    shown = bench("--results", results, *option)
    assert shown.exit_code == 2
    assert f"{option[0]} has no effect" in shown.stderr


def test_a_failed_run_leaves_files_alone(results: Path, bench: Any, tmp_path: Path) -> None:
    before = results.read_bytes()
    for path in (results, tmp_path / "new.json"):
        assert bench("--url", "http://127.0.0.1:9", "--output", path).exit_code == 1
    assert results.read_bytes() == before
    assert not (tmp_path / "new.json").exists()


def test_results_that_cannot_be_written_keep_earlier_ones(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results.read_bytes()

    def fail(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(BenchError, match="No space left"):
        write_results(results, [])
    assert results.read_bytes() == before
    assert [path.name for path in results.parent.iterdir()] == [results.name]


def test_results_behind_a_link_are_replaced(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file is written next to the file itself: the link may be on another file system."""
    link, renamed = tmp_path / "links" / "latest.json", Path.replace
    link.parent.mkdir()
    link.symlink_to(results)

    def rename(path: Path, target: Path) -> Path:
        assert path.parent == target.parent
        return renamed(path, target)

    monkeypatch.setattr(Path, "replace", rename)
    check_output(link)
    write_results(link, [])
    assert link.is_symlink()
    assert json.loads(results.read_bytes())["results"] == []


def test_folders_that_take_no_file_are_refused(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can be written may lie in a folder in which no new file can be made."""
    before, opened = results.read_bytes(), Path.open

    def open_known(path: Path, mode: str) -> Any:
        if path != results:
            raise OSError(13, "Permission denied")
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", open_known)
    with pytest.raises(BenchError, match="Permission denied"):
        check_output(results)
    assert results.read_bytes() == before


@pytest.mark.parametrize("option", ["--rate", "--duration", "--scale", "--timeout"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none_are_refused(bench: Any, option: str, value: str) -> None:
    shown = bench(option, value)
    assert shown.exit_code == 2
    assert "is not a finite number" in shown.stderr


def test_a_comparison_has_ratios_of_each_load(results: Path, bench: Any, tmp_path: Path) -> None:
    changed = json.loads(results.read_text())
    changed["results"][0]["ttft_p50_ms"] *= 2
    changed["results"][1]["rate"] = 7
    now = tmp_path / "now.json"
    now.write_text(json.dumps(changed))
    lines = [line.split("\t") for line in bench("--results", now, "--baseline", results).stdout.splitlines()]
    found = {(row[1], row[2]): row[5] for row in lines[1:]}
    assert found["50", "ttft_p50_ms"] == "2.000"
    assert found["50", "output_tok_s"] == "1.000"
    assert {("7", "only now"), ("100", "only before")} <= set(found)


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_a_sweep_is_drawn(results: Path, bench: Any, tmp_path: Path, name: str) -> None:
    shown = bench("--results", results, "--plot", tmp_path / name)
    assert shown.exit_code == 0, shown.stderr
    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "cannot be read: No such file"),
        ("{", "has no results of `llmfw bench --output`"),
        ('{"results": [{}]}', "result 1: Object missing required field"),
        ('{"results": [], "version": 9}', "has results of version 9"),
    ],
)
def test_a_file_without_results_is_named(bench: Any, tmp_path: Path, text: str | None, named: str) -> None:
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text)
    shown = bench("--results", path)
    assert shown.exit_code == 1
    assert named in shown.stderr


@pytest.mark.parametrize(
    ("key", "value"), [("runs", []), ("runs", 5), ("runs", [{}]), ("output_tok_s", "x"), ("ttft_p50_ms", "x")]
)
@pytest.mark.parametrize("option", ["--results", "--baseline"])
def test_edited_results_are_named_with_their_field(
    results: Path, bench: Any, tmp_path: Path, option: str, key: str, value: object
) -> None:
    changed = json.loads(results.read_text())
    changed["results"][1][key] = value
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(changed))
    shown = bench(option, edited, *(["--results", results] if option == "--baseline" else []))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"{option} {edited}: result 2: " in shown.stderr
    assert f"`$.{key}" in shown.stderr


def test_unusable_files_are_named_before_a_run(bench: Any, tmp_path: Path) -> None:
    for option, path, named in (
        ("--output", tmp_path / "absent" / "o.json", "cannot be written: No such file"),
        ("--plot", tmp_path / "plot.xyz", "must end with a format"),
    ):
        shown = bench("--url", "http://127.0.0.1:9", option, path)
        assert (shown.exit_code, len(shown.stderr.splitlines())) == (1, 1)
        assert named in shown.stderr


def test_the_timeline_equals_a_hand_calculated_one() -> None:
    """Twenty pieces of a second each."""
    replies = [
        Reply(3, started=100.5, ended=103.5, times=[101.5, 102.5, 103.5], output_tokens=6),
        Reply(1, started=110.5, ended=120.0, error="no"),
    ]
    pieces = timeline_of(Run("s", replies, wall=20.0, started=100.0))
    assert [piece["from_s"] for piece in pieces[:3]] == [0, 1, 2]
    assert [piece["output_tok_s"] for piece in pieces[:5]] == [0, 2, 2, 2, 0]
    assert (pieces[0]["sent"], pieces[3]["ended"], pieces[1]["ttft_p50_ms"]) == (1, 1, 1000)
    assert [piece["itl_p99_ms"] for piece in pieces[1:4]] == [None, 1000, 1000]
    assert (sum(piece["failed"] for piece in pieces), pieces[-1]["failed"]) == (1, 1)
