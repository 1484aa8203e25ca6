"""The folder of a server's crash reports. Each report is a folder in it; the oldest reports are removed."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.user_path import storage_folder, user_path

logger = logging.getLogger(__name__)

MAX_REPORTS = 20
"""Maximum number of reports in the folder."""
MAX_BYTES = 20 * 2**20
"""Maximum size of all reports together, in bytes."""
FILES = ("report.json", "steps.jsonl", "stacks.txt", "engine.log", "api.log")
"""Names of the files that a report may have."""
UNFINISHED_S = 24 * 3600.0
"""Age in seconds after which a report that is not finished will not be: the server that wrote it was killed."""
NONE = "none"
"""Value of `--crash-reports` that turns reports off."""

_UNFINISHED = ".unfinished"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}Z-[a-z-]+")
"""Matches the name of a report's folder."""


def crash_folder(crash_reports: str | None, storage: str | None) -> Path | None:
    """Return the folder for crash reports that the settings choose; None: no reports are written.

    Args:
        crash_reports: value of `--crash-reports`.
        storage: value of `--storage`.
    """
    if crash_reports is not None:
        return None if crash_reports == NONE else user_path(crash_reports, "--crash-reports")
    return None if storage is None else storage_folder(storage) / "crashes"


def check_crash_folder(config: ServerConfig) -> None:
    """Create the folder that `--crash-reports` names.

    Raises:
        ConfigError: the folder cannot be created or written to.
    """
    if config.crash_reports is None or config.crash_reports == NONE:
        return
    path = user_path(config.crash_reports, "--crash-reports")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise ConfigError(
            f"--crash-reports {config.crash_reports!r} cannot be written: {error.strerror}; name a folder that this "
            f"user may write to, or {NONE!r} for no reports"
        ) from error


class CrashFolder:
    """Writes crash reports to a folder. Only the server's user can read them.

    Args:
        path: the folder, which is created with the first report.
        max_reports, max_bytes: number and size at which the oldest reports are removed.
    """

    def __init__(self, path: Path, max_reports: int = MAX_REPORTS, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_reports = max_reports
        self._max_bytes = max_bytes

    def write(self, what: str, files: Mapping[str, str]) -> Path:
        """Write a report, then remove the oldest ones; return the report's folder.

        Args:
            what: the event, in letters and hyphens.
            files: name of each file, one of FILES → text.

        Raises:
            OSError: the report cannot be written; its files are removed, if the disk allows that.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self.path / f"{_UNFINISHED}-{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            unfinished.mkdir(mode=0o700)
            for name, text in files.items():
                descriptor = os.open(unfinished / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
            # Names sort by time.
            report = unfinished.rename(self.path / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}-{what}")
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        self._remove_oldest()
        return report

    def remove_unfinished(self) -> None:
        """Remove old reports that a server did not finish because it was killed, and log their number."""
        removed, before = 0, time.time() - UNFINISHED_S
        with contextlib.suppress(OSError):  # the folder does not exist yet, or is another user's
            for each in list(self.path.glob(f"{_UNFINISHED}-*")):
                with contextlib.suppress(OSError):
                    if each.lstat().st_mtime < before and not each.is_symlink():
                        _remove(each)
                        removed += not each.exists()
        if removed:
            logger.info("Removed %d unfinished crash reports of servers that were killed", removed)

    def reports(self) -> list[Path]:
        """Return the folders of all reports, the oldest first.

        Raises:
            OSError: the folder cannot be read.
        """
        if not self.path.exists():
            return []
        return sorted(
            each for each in self.path.iterdir() if _NAME.fullmatch(each.name) and not each.is_symlink()
        )

    def _remove_oldest(self) -> None:
        """Remove the oldest reports beyond the limits. Skips reports that cannot be read or removed."""
        reports = self.reports()
        sizes = [_size(report) for report in reports]
        while len(reports) > 1 and (len(reports) > self._max_reports or sum(sizes) > self._max_bytes):
            _remove(reports.pop(0))
            del sizes[0]


def _size(report: Path) -> int:
    size = 0
    for name in FILES:
        with contextlib.suppress(OSError):
            size += (report / name).lstat().st_size
    return size


def _remove(report: Path) -> None:
    """Remove a report's own files, and its folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in FILES:
            (report / name).unlink(missing_ok=True)
        report.rmdir()
