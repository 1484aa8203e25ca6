"""The folder of crash reports is bounded, private, and never holds half a report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmfw.api.crashes.crash_folder import CrashFolder, check_crash_folder, crash_folder
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError


def test_the_oldest_reports_are_removed_first(tmp_path: Path) -> None:
    folder = CrashFolder(tmp_path / "crashes", max_reports=3)
    written = [folder.write("engine-killed", {"report.json": str(number)}) for number in range(5)]
    assert folder.reports() == written[2:]


def test_reports_together_stay_within_their_size(tmp_path: Path) -> None:
    folder = CrashFolder(tmp_path, max_bytes=2500)
    written = [folder.write("engine-killed", {"report.json": "x" * 1000}) for _ in range(4)]
    assert folder.reports() == written[2:]
    large = folder.write("engine-killed", {"report.json": "x" * 9000})
    assert folder.reports() == [large]  # the newest stays


def test_unfinished_reports_go_after_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    old, new, others = (tmp_path / name for name in (".unfinished-1", ".unfinished-2", ".unfinished-3"))
    for each in (old, new, others):
        each.mkdir()
        (each / "report.json").touch()
    (others / "mine.txt").touch()
    for each in (old, others):
        os.utime(each, (0, 0))
    CrashFolder(tmp_path).remove_unfinished()
    assert {each.name for each in tmp_path.iterdir()} == {new.name, others.name}  # another's file stays
    assert "Removed 1 unfinished crash reports" in caplog.text
    CrashFolder(tmp_path / "none").remove_unfinished()


def test_only_the_server_s_user_can_read_reports(tmp_path: Path) -> None:
    folder = CrashFolder(tmp_path / "crashes")
    report = folder.write("engine-killed", {"report.json": "{}"})
    modes = [path.stat().st_mode & 0o777 for path in (folder.path, report, report / "report.json")]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_no_half_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CrashFolder(tmp_path)
    real_open = os.open

    def opened(path: str, flags: int, *args: int, **options: int) -> int:
        full = Path(path).name == "stacks.txt"
        return real_open("/dev/full", os.O_WRONLY) if full else real_open(path, flags, *args, **options)

    monkeypatch.setattr("os.open", opened)
    with pytest.raises(OSError, match="No space left"):
        folder.write("engine-killed", {"report.json": "{}", "stacks.txt": "x" * 100_000})
    assert list(tmp_path.iterdir()) == []


def test_other_folders_are_neither_listed_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "report.json").touch()
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    folder = CrashFolder(tmp_path, max_reports=1)
    reports = [folder.write("engine-killed", {"report.json": "{}"}) for _ in range(2)]
    assert folder.reports() == reports[1:]
    assert (tmp_path / "notes" / "report.json").exists()


def test_added_files_outlive_their_report(tmp_path: Path) -> None:
    folder = CrashFolder(tmp_path, max_reports=1)
    first = folder.write("engine-killed", {"report.json": "{}"})
    (first / "my-notes").touch()
    folder.write("engine-killed", {"report.json": "{}"})
    assert [path.name for path in first.iterdir()] == ["my-notes"]


@pytest.mark.parametrize(
    ("crash_reports", "storage", "expected"),
    [
        (None, None, None),
        (None, "/s", "/s/crashes"),
        ("/c", "/s", "/c"),
        ("none", "/s", None),
        ("/c", None, "/c"),
    ],
)
def test_settings_choose_the_folder(
    crash_reports: str | None, storage: str | None, expected: str | None
) -> None:
    found = crash_folder(crash_reports, storage)
    assert (None if found is None else str(found)) == expected


def test_a_folder_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = ServerConfig(served_model_name="m", crash_reports=str(tmp_path / "file" / "crashes"))
    with pytest.raises(ConfigError, match=r"--crash-reports .* cannot be written: Not a directory"):
        check_crash_folder(config)
