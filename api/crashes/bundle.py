"""Packs texts for a bug report into one .tar.gz, without secrets."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from llmfw.core.base.errors import ConfigError

from .crash_folder import FILES, CrashFolder
from .secrets import Secrets

TOP = "llmfw-bundle"
"""Name of the folder in the archive."""
MAX_FILE_BYTES = 32 * 2**20
"""Maximum size of a crash report's file that is packed, in bytes. llmfw writes far less."""


class Bundle:
    """Collects the files of a bundle, and writes them to an archive.

    Args:
        secrets: hides secrets in each text.

    Attributes:
        has_messages: whether a crash report keeps messages of exceptions, which may quote requests.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._texts: dict[str, str] = {}
        self.has_messages = False

    @property
    def sizes(self) -> Mapping[str, int]:
        """Name of each file → size in bytes."""
        return {name: len(text.encode()) for name, text in self._texts.items()}

    def add(self, name: str, text: str) -> None:
        """Add a file, with its secrets hidden. A JSON file stays valid JSON."""
        try:
            if name.endswith(".json"):
                self._texts[name] = json.dumps(self._secrets.hide_in(json.loads(text)), indent=2) + "\n"
                return
        except (ValueError, RecursionError):  # not JSON after all, or nested too deeply
            pass
        self._texts[name] = self._secrets.hide(text)

    def add_reports(self, folder: CrashFolder) -> int:
        """Add all crash reports of a folder, without other files in it; return the number of reports.

        Raises:
            ConfigError: the folder cannot be read.
        """
        try:
            reports = folder.reports()
            for report in reports:
                self.has_messages |= _keeps_messages(report)
                for file in (report / name for name in FILES):
                    if file.is_file() and not file.is_symlink() and file.stat().st_size <= MAX_FILE_BYTES:
                        self.add(f"crashes/{report.name}/{file.name}", file.read_text(errors="replace"))
        except OSError as error:
            raise ConfigError(f"crash reports in {folder.path} cannot be read: {error.strerror}") from error
        return len(reports)

    def write(self, path: Path, files: Mapping[str, Path] | None = None) -> None:
        """Write the archive, which only this user can read.

        Args:
            path: path of a file that does not exist yet.
            files: files to add as they are, by their names in the archive.

        Raises:
            ConfigError: the file exists, or cannot be written. A file that was written in part is removed.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise ConfigError(f"--output {path} cannot be made: {error.strerror}") from error
        try:
            with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, text in self._texts.items():
                    data = text.encode()
                    archive.addfile(_entry(name, len(data)), io.BytesIO(data))
                for name, source in (files or {}).items():
                    with source.open("rb") as content:
                        size = os.fstat(content.fileno()).st_size
                        archive.addfile(_entry(name, size), content)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise ConfigError(f"--output {path} cannot be written: {error.strerror or error}") from error


def _keeps_messages(report: Path) -> bool:
    """Return whether a report keeps messages of exceptions, or does not say so."""
    try:
        return json.loads((report / "report.json").read_text())["has_messages"] is not False
    except (ValueError, LookupError, TypeError, RecursionError):
        return True


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(f"{TOP}/{name}")
    entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
    return entry
