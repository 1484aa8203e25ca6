"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmfw.api.offline.whole_file import OutputError, check_writable, whole_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_only_when_complete(tmp_path: Path) -> None:
    with whole_file(tmp_path / "out") as file:
        file.write(b"text")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_bytes() == b"text"
    assert names(tmp_path) == ["out"]


def test_an_exception_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")

    def write_half() -> None:
        with whole_file(tmp_path / "out") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "out").read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_a_crash_s_leftover_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".out.run.part").write_bytes(b"longer than the text")
    with whole_file(tmp_path / "out", "run") as file:
        file.write(b"text")
    assert (tmp_path / "out").read_bytes() == b"text"
    assert names(tmp_path) == ["out"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    with whole_file(tmp_path / "link") as file:
        file.write(b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"text"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with whole_file(tmp_path / "pipe") as file:
        file.write(b"text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert names(tmp_path) == ["pipe"]


def test_the_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    with whole_file(tmp_path / "out"):
        pass
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("path", ["", "missing/out"])
def test_an_unwritable_path_is_reported(tmp_path: Path, path: str) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(tmp_path / path)
    with pytest.raises(OutputError, match="cannot be written"), whole_file(tmp_path / path):
        pass
