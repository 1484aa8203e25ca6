"""Uploads leave some of the disk free."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmfw.api.files import disk_space as module
from llmfw.api.files.disk_space import DiskSpace
from llmfw.core.base.errors import StorageError, StorageFullError

MIB = 2**20


def disk_with(monkeypatch: pytest.MonkeyPatch, free: list[int], total: int = 100_000) -> None:
    """Let the disk have this many MiB free at each look."""
    looks = iter(free)
    usage = lambda _: SimpleNamespace(total=total * MIB, free=next(looks) * MIB)
    monkeypatch.setattr(shutil, "disk_usage", usage)


async def pieces(num: int) -> AsyncIterator[bytes]:
    for _ in range(num):
        yield b"a" * MIB


def test_a_full_disk_refuses_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(monkeypatch, [99])
    with pytest.raises(StorageFullError, match="99 MiB left, and 100 MiB are kept free"):
        DiskSpace(None, 100).check()


async def test_an_upload_ends_when_the_disk_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(monkeypatch, [200, 150, 50])
    taken = []

    async def upload() -> None:
        async for piece in DiskSpace(None, 100).guarded(pieces(100)):
            taken.append(len(piece))

    with pytest.raises(StorageFullError):
        await upload()
    assert sum(taken) <= 2 * module.LOOK_BYTES


def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        DiskSpace(str(tmp_path / "gone"), 100).check()


def test_a_small_disk_has_a_small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(monkeypatch, [10], total=100)
    DiskSpace(None, 1024).check()
