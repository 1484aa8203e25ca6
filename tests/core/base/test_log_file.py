"""A log file loses no line to log rotation."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.log import LogTarget
from llmfw.core.base.log_file import LogFile


def test_a_moved_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(str(path))
    file.write("a\n")
    path.rename(tmp_path / "log.1")
    file.write("b\n")
    path.unlink()
    file.write("c\n")
    file.close()
    assert (tmp_path / "log.1").read_text() == "a\n"
    assert path.read_text() == "c\n"


def test_the_old_file_stays_without_a_new(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = LogFile(str(folder / "log"))
    folder.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        file.write("a\n")
    (tmp_path / "moved").rename(folder)
    file.write("b\n")
    assert (folder / "log").read_text() == "b\n"


def write_many(path: str, letter: str) -> None:
    file = LogFile(path)
    for _ in range(500):
        file.write(letter * 200 + "\n")


def test_lines_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_many, args=(path, letter)) for letter in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = Path(path).read_text().splitlines()
    assert sorted(lines) == ["a" * 200] * 500 + ["b" * 200] * 500


@pytest.mark.parametrize("place", ["missing/log", ""])
def test_an_unusable_path_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match=r"--log-file '.*' cannot be written: "):
        LogFile(str(tmp_path / place))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_target_writes_to_its_file(tmp_path: Path, form: str) -> None:
    logger = logging.Logger("test")  # noqa: LOG001
    logger.addHandler(LogTarget(form, str(tmp_path / "log")).handler())
    logger.warning("a\nb")
    [line] = (tmp_path / "log").read_text().splitlines()
    assert r"a\nb" in line
    assert line.startswith("{") == (form == "json")


def test_a_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"--log-file .* cannot be written"):
        LogFile(str(tmp_path / "log"))
