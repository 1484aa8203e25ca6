"""The folder with the state of an offline run, from its first attempt to its end.

A marker file records what the run works on. The progress is in the stores, which this module does not read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from llmfw.core.base.errors import ConfigError

MARKER = "run.json"
GONE = ".gone"
PIECE = 2**20


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a run works on: a file of requests and a model. A run continues only with an equal subject.

    Attributes:
        num_bytes, sha256: size and SHA-256 of the file of requests.
        model: folder or hub id of the model.
        served_name: name of the model in the file's lines.
        adapters: names of the adapters that lines may use, and the SHA-256 of the files of each.
    """

    num_bytes: int
    sha256: str
    model: str
    served_name: str
    adapters: dict[str, str] = {}


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    subject: Subject
    is_ours: bool  # whether the run created the folder, and so removes it at the end
    format: int = 1


def digests_of(adapters: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return name of an adapter → SHA-256 of the files in its folder, without subfolders.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = {}
    for name, folder in adapters:
        whole = hashlib.sha256()
        for file in sorted(each for each in Path(folder).glob("*") if each.is_file()):
            whole.update(f"{file.name} {digest_of(file)[1]}\n".encode())
        found[name] = whole.hexdigest()
    return found


def digest_of(path: Path) -> tuple[int, str]:
    """Return a file's size in bytes and its SHA-256.

    Raises:
        ConfigError: the file cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    return size, digest.hexdigest()


class RunFolder:
    """The folder of a run. Created if it does not exist.

    Args:
        path: path of the folder, which must be empty or belong to this run.
        subject: subject of this attempt.
        source: name of the file of requests, for errors.

    Raises:
        ConfigError: the folder has other content, belongs to a run with another subject, or cannot be used.

    Attributes:
        is_resumed: whether the folder contains the state of an earlier attempt.
    """

    def __init__(self, path: Path, subject: Subject, source: str) -> None:
        self.path = path
        try:
            shutil.rmtree(self._gone, ignore_errors=True)
            found = self._read()
            if found is not None:
                _check_same(found.subject, subject, source, path)
            else:
                self._make(subject)
        except OSError as error:
            raise ConfigError(f"{str(path)!r} cannot be used as storage: {error.strerror}") from error
        self.is_resumed = found is not None

    def end(self) -> None:
        """Remove the folder, unless it existed before the run. Call this when nothing uses the folder."""
        found = self._read()
        if found is not None and found.is_ours:
            # Rename it first, so that a crash during the removal leaves no folder that looks like a run's.
            os.rename(self.path, self._gone)
            shutil.rmtree(self._gone, ignore_errors=True)

    @property
    def _gone(self) -> Path:
        return self.path.with_name(self.path.name + GONE)

    def _read(self) -> _Marker | None:
        """Return the marker of an earlier attempt, or None if there was none."""
        try:
            return msgspec.json.decode((self.path / MARKER).read_bytes(), type=_Marker)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{str(self.path / MARKER)!r} is not what this version of llmfw writes: {error}"
            ) from error

    def _make(self, subject: Subject) -> None:
        is_ours = not self.path.exists()
        if not is_ours and any(entry.name != f"{MARKER}.part" for entry in self.path.iterdir()):
            raise ConfigError(
                f"{str(self.path)!r} is not empty, and not the folder of a run: name another one for this run"
            )
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path / f"{MARKER}.part"
        part.write_bytes(msgspec.json.encode(_Marker(subject=subject, is_ours=is_ours)))
        os.replace(part, self.path / MARKER)


def _check_same(before: Subject, now: Subject, source: str, path: Path) -> None:
    begin_anew = f"To start again, remove the folder {str(path)!r}"
    if (before.num_bytes, before.sha256) != (now.num_bytes, now.sha256):
        raise ConfigError(
            f"{source!r} has changed since this run started: it had {before.num_bytes} bytes with SHA-256 "
            f"{before.sha256[:12]}…, and has {now.num_bytes} bytes with {now.sha256[:12]}…. {begin_anew}"
        )
    for name, field in (("model", "model"), ("served model name", "served_name")):
        if getattr(before, field) != getattr(now, field):
            raise ConfigError(
                f"this run started with the {name} {getattr(before, field)!r}, not {getattr(now, field)!r}: its "
                f"results would mix both. {begin_anew}"
            )
    if before.adapters != now.adapters:
        changed = min({*before.adapters.items()} ^ {*now.adapters.items()})[0]
        raise ConfigError(
            f"this run started with other adapters: {changed!r} was added, removed or changed since; its results would "
            f"mix both. {begin_anew}"
        )
