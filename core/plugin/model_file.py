"""Makes a model folder from a single file that holds weights, config and tokenizer, such as a GGUF file.

The weight loader whose name is the file's suffix writes config and tokenizer into a folder in the cache. The
folder has a link to the file itself, so llmfw serves it like any other model folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmfw.core.base.about import version
from llmfw.core.base.described import described
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.base.user_cache import user_cache
from llmfw.core.interfaces.weight_loader import WeightLoader

from .containment import raise_if_process_ends
from .one_line import one_line
from .registry import Entry, Registry

KIND = "weight_loader"


def model_file(path: Path, registry: Registry) -> Path | None:
    """Return a single-file model's file: the path, or the only such file in a folder without config.json.

    Returns None if there is none.

    Raises:
        ModelError: the folder holds several such files.
        ComponentError: the loader cannot be imported.
    """
    if path.is_file():
        return path if _is_described(path.suffix, registry) else None
    if not path.is_dir() or os.path.lexists(path / "config.json"):
        return None
    files = sorted(path.iterdir())
    described = {suffix for suffix in {file.suffix for file in files} if _is_described(suffix, registry)}
    found = [file for file in files if file.suffix in described]
    if len(found) > 1:
        shown = ", ".join(file.name for file in found[:4])
        raise ModelError(
            f"model {str(path)!r} holds {len(found)} models ({shown}); give the file to serve by its own path"
        )
    return found[0] if found else None


def _is_described(suffix: str, registry: Registry) -> bool:
    """Return whether a loader can describe files with this suffix."""
    name = suffix.removeprefix(".")
    if name not in registry.names(KIND):
        return False
    component: type[WeightLoader] = registry.find(KIND, name).load()
    return component.describe.__func__ is not WeightLoader.describe.__func__  # type: ignore[attr-defined]


def folder_of_file(file: Path, registry: Registry) -> str:
    """Return the folder of a single-file model. Writes the folder if it is not in the cache.

    Raises:
        ModelError: the loader refuses the file, or the folder cannot be written.
        ComponentError: the loader cannot be imported, or fails.
    """
    entry = registry.find(KIND, file.suffix.removeprefix("."))
    component: type[WeightLoader] = entry.load()
    try:
        folder = cache_folder() / _key(file, entry)
        if not folder.is_dir():
            _fill(folder, file, entry, component.describe)
    except OSError as error:
        raise ModelError(
            f"model {str(file)!r}: {error.filename or file} cannot be used: {error.strerror or error}"
        ) from error
    return str(folder)


def cache_folder() -> Path:
    """Return the cache folder of single-file models: `llmfw/models` in `$XDG_CACHE_HOME` or `~/.cache`."""
    return user_cache() / "models"


def _key(file: Path, entry: Entry) -> str:
    """Return a name that changes with the file and the versions of llmfw, the loader and transformers."""
    real = file.resolve()
    status = real.stat()
    versions = version(), entry.version, importlib.metadata.version("transformers")
    told = "\0".join(map(str, (real, status.st_size, status.st_mtime_ns, *versions)))
    return f"{file.stem}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _fill(folder: Path, file: Path, entry: Entry, describe: Callable[[Path, Path], None]) -> None:
    """Write a folder atomically: it gets its name only when it is complete."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _describe(file, new, entry, describe)
        (new / file.name).symlink_to(file.resolve())
        _rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _rename(new: Path, folder: Path) -> None:
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise, another process has written the same folder
            raise


def _describe(file: Path, folder: Path, entry: Entry, describe: Callable[[Path, Path], None]) -> None:
    try:
        describe(file, folder)
    except (ModelError, ConfigError):
        raise
    except BaseException as error:  # a plugin may raise anything; it is reported
        raise_if_process_ends(error)
        raise ComponentError(f"{entry} failed in describe(): {one_line(described(error))}") from error
    if not (folder / "config.json").is_file():
        raise ComponentError(f"{entry} wrote no config.json in describe()")
