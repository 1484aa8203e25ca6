"""`llmfw debug bundle` packs crash reports alone, and says what is in them. With a server: tests/crash/test_reports.py."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.commands.debug.server_replies import without_tenants
from llmfw.api.crashes.crash_folder import CrashFolder


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.api.commands.remote.DEFAULT_URL", "http://127.0.0.1:9")


def bundle(path: Path, *arguments: object) -> Result:
    return CliRunner().invoke(build_cli(), ["debug", "bundle", "--output", str(path), *map(str, arguments)])


def report(folder: Path, *, has_messages: bool) -> Path:
    files = {"report.json": json.dumps({"has_messages": has_messages}), "engine.log": "a line\n"}
    return CrashFolder(folder).write("engine-killed", files)


@pytest.mark.parametrize("has_messages", [False, True])
def test_the_last_line_says_what_is_held(tmp_path: Path, has_messages: bool) -> None:
    report(tmp_path / "crashes", has_messages=False)
    report(tmp_path / "crashes", has_messages=has_messages)
    result = bundle(tmp_path / "b.tar.gz", "--storage", tmp_path)
    assert result.exit_code == 0, result.output
    assert ("messages of exceptions" in result.output.splitlines()[-1]) is has_messages
    assert ("no prompts, replies or keys" in result.output.splitlines()[-1]) is not has_messages


def test_only_files_of_reports_are_packed(tmp_path: Path) -> None:
    written = report(tmp_path / "here", has_messages=False)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (written / "stacks.txt").symlink_to(secret)
    (written / "notes.txt").write_text("not of llmfw")
    assert bundle(tmp_path / "b.tar.gz", "--crash-reports", tmp_path / "here").exit_code == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert names == {"report.json", "engine.log", "about.json"}


def test_both_folders_of_reports_are_packed(tmp_path: Path) -> None:
    written = [
        report(tmp_path / "s" / "crashes", has_messages=False),
        report(tmp_path / "c", has_messages=False),
    ]
    given = ("--storage", tmp_path / "s", "--crash-reports", tmp_path / "c")
    result = bundle(tmp_path / "b.tar.gz", *given)
    assert f"Crash reports: 2, in {tmp_path / 'c'} and {tmp_path / 's' / 'crashes'}" in result.output
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = {Path(name).parent.name for name in archive.getnames()}
    assert {path.name for path in written} <= names


def test_nothing_to_pack_is_an_error(tmp_path: Path) -> None:
    for given in ((), ("--storage", tmp_path), ("--url", "http://127.0.0.1:9")):
        result = bundle(tmp_path / "b.tar.gz", *given)
        assert result.exit_code == 1
        assert "no server answers at http://127.0.0.1:9" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(tmp_path, has_messages=False)
    real_open, path = os.open, tmp_path / "b.tar.gz"

    def opened(name: object, flags: int, *args: int, **options: int) -> int:
        made = real_open(name, flags, *args, **options)  # type: ignore[call-overload]
        return real_open("/dev/full", os.O_WRONLY) if name == path else made

    monkeypatch.setattr("os.open", opened)
    result = bundle(path, "--crash-reports", tmp_path)
    assert (result.exit_code, path.exists()) == (1, False)
    assert f"--output {path} cannot be written: No space left on device" in result.output


def test_tenants_of_metrics_become_numbers() -> None:
    metrics = 'a{tenant="ann",class="live"} 1\nb{tenant="bob \\"b\\""} 2\nc{class="live",tenant="ann"} 3\n'
    expected = (
        'a{tenant="tenant-1",class="live"} 1\nb{tenant="tenant-2"} 2\nc{class="live",tenant="tenant-1"} 3\n'
    )
    assert without_tenants(metrics) == expected
