"""Marks survive the process that set them, and say only what it was busy with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llmfw.api.batches.work_marks import NAME, NUM_SLOTS, WorkMarks


def left(folder: Path) -> dict[str, set[int]]:
    """Return what a process that died now would leave, by a copy of its file."""
    copy = folder / "copy"
    copy.mkdir(exist_ok=True)
    (copy / f"{NAME}.0").write_bytes((folder / f"{NAME}.0").read_bytes())
    marks = WorkMarks(copy)
    marks.close()
    return {job: set(lines) for job, lines in marks.found.items()}


@pytest.fixture
def marks(tmp_path: Path) -> WorkMarks:
    return WorkMarks(tmp_path)


def test_a_mark_exists_within_its_block(marks: WorkMarks, tmp_path: Path) -> None:
    with marks.marked("batch_1", 7), marks.marked("batch_1", 8), marks.marked("batch_2", 0):
        assert left(tmp_path) == {"batch_1": {7, 8}, "batch_2": {0}}
    assert left(tmp_path) == {}


def test_lines_waiting_for_the_engine_are_not_marked(marks: WorkMarks, tmp_path: Path) -> None:
    with marks.marked("batch_1", 7) as mark:
        with mark.stream():
            with mark.waiting():
                assert left(tmp_path) == {}
            assert left(tmp_path) == {"batch_1": {7}}
        assert mark.was_sent


def test_a_line_stays_marked_until_all_streams_wait(marks: WorkMarks, tmp_path: Path) -> None:
    with marks.marked("batch_1", 7) as mark, mark.stream(), mark.stream(), mark.waiting():
        assert left(tmp_path) == {"batch_1": {7}}
        with mark.waiting():
            assert left(tmp_path) == {}


def test_more_lines_than_slots_are_not_marked(marks: WorkMarks, tmp_path: Path) -> None:
    blocks = [marks.marked("batch_1", line) for line in range(1, NUM_SLOTS + 10)]
    for block in blocks:
        block.__enter__()
    assert len(left(tmp_path)["batch_1"]) == NUM_SLOTS
    for block in blocks:
        block.__exit__(None, None, None)
    assert left(tmp_path) == {}


def test_each_process_has_its_own_file(marks: WorkMarks, tmp_path: Path) -> None:
    other = WorkMarks(tmp_path)
    with marks.marked("batch_1", 1), other.marked("batch_2", 2):
        assert left(tmp_path) == {"batch_1": {1}}
    other.close()


def test_without_a_folder_nothing_is_stored() -> None:
    with WorkMarks(None).marked("batch_1", 1) as mark, mark.stream(), mark.waiting():
        assert mark.was_sent


def test_an_unusable_folder_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with WorkMarks(tmp_path / "file").marked("batch_1", 1):
        pass
    assert "cannot be found after it" in caplog.text


def test_marks_survive_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, pathlib\n"
        "from llmfw.api.batches.work_marks import WorkMarks\n"
        "marks = WorkMarks(pathlib.Path(sys.argv[1]))\n"
        "with marks.marked('batch_1', 42):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = (sys.executable, "-c", script, str(tmp_path))
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    marks = WorkMarks(tmp_path)
    assert marks.found == {"batch_1": frozenset({42})}
    marks.close()
    assert WorkMarks(tmp_path).found == {}  # once told, they are gone
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.0"]
    assert os.stat(tmp_path / f"{NAME}.0").st_mode & 0o777 == 0o600
