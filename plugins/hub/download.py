"""Downloads a model's files into the hub's cache, and compares them with the hub's checksums."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import HubError, reason_of
from .wanted import wanted_files

PIECE = 2**22
CONNECTION_HINT = "check the name, the network, and HF_TOKEN for models that need an account"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the hub.

    Attributes:
        size: bytes; 0 if the hub does not say.
        sha256: checksum of the content; None: the hub has no checksum, for example for small files.
    """

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Remote:
    """A model on the hub at one commit."""

    name: str
    commit: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def look_up(name: str, revision: str | None, include: Sequence[str]) -> Remote:
    """Ask the hub for a model's files, and choose those to download.

    Raises:
        HubError: the hub cannot be reached or has no such model; or see `wanted_files`.
    """
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True)
    except Exception as error:
        raise HubError(
            f"{name!r} cannot be looked up on the hub: {reason_of(error)}; {CONNECTION_HINT}"
        ) from error
    known = {
        each.rfilename: RemoteFile(each.rfilename, each.size or 0, each.lfs.sha256 if each.lfs else None)
        for each in info.siblings or ()
    }
    chosen = wanted_files(name, list(known), include)
    return Remote(name, info.sha or revision or "main", tuple(known[file] for file in chosen))


def download(remote: Remote) -> Path:
    """Download the files that are missing or incomplete in the cache, and return their folder.

    Raises:
        HubError: the disk has no room, or a file cannot be downloaded.
    """
    from huggingface_hub import constants, snapshot_download

    _check_room(remote, Path(constants.HF_HUB_CACHE))
    try:
        folder = snapshot_download(
            remote.name, revision=remote.commit, allow_patterns=[_literal(file.name) for file in remote.files]
        )
    except Exception as error:
        raise HubError(
            f"{remote.name} could not be downloaded whole: {reason_of(error)}; run the command again to continue"
        ) from error
    return Path(folder)


def verify(remote: Remote, folder: Path, tell: Callable[[str], None]) -> int:
    """Compare the files with the hub's sizes and SHA-256 checksums; return how many have a checksum.

    Removes a file that differs from the cache, so that the next download fetches the file again.

    Args:
        tell: called with each file's name before it is read.

    Raises:
        HubError: a file differs.
    """
    num_checked = 0
    for file in remote.files:
        path = folder / file.name
        size = path.stat().st_size
        if file.size and size != file.size:
            _forget(path)
            raise HubError(_damaged(file.name, f"{size} bytes in place of {file.size}"))
        if file.sha256 is None:
            continue
        tell(file.name)
        if _sha256(path) != file.sha256:
            _forget(path)
            raise HubError(_damaged(file.name, "a SHA-256 that differs from the hub's"))
        num_checked += 1
    return num_checked


def _damaged(name: str, what: str) -> str:
    return f"{name} has {what}, and was removed; run the command again to download it anew"


def _forget(path: Path) -> None:
    """Remove a file from the cache: the link, and the file that the link points to."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest()


def _check_room(remote: Remote, cache: Path) -> None:
    """Raise HubError if the disk has no room for the files that the cache lacks."""
    from huggingface_hub import try_to_load_from_cache

    missing = sum(
        file.size
        for file in remote.files
        if not isinstance(try_to_load_from_cache(remote.name, file.name, revision=remote.commit), str)
    )
    place = next(each for each in (cache, *cache.parents) if each.exists())
    free = shutil.disk_usage(place).free
    if missing > free:
        raise HubError(
            f"{remote.name} needs {missing / 1e9:.2f} GB more in {cache}, and {free / 1e9:.2f} GB are free there; make room, "
            "or name another folder by HF_HOME"
        )


def _literal(name: str) -> str:
    """Return a pattern that matches only this name, even if the name contains wildcards."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
