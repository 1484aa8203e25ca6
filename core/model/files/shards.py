"""Reads the index of a checkpoint that consists of several files.

An index is untrusted input. transformers joins the file names in it to the folder's path without a check, so
it would read "../other/model.safetensors". This module accepts only files below the model's own folder.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from llmfw.core.base.errors import ModelError

from .small_files import read_json

MAX_NAMES = 3
AGAIN = "download or convert the checkpoint again"


def is_inside(name: Any) -> bool:
    """Return whether a file name from a model's index stays within the model's folder."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and path.name != ""


def shard_names(path: str, index: Path) -> list[str]:
    """Return the names of a checkpoint's weight files, from its index.

    Args:
        path: the model's folder, or a hub id.
        index: path of the index file, `….index.json`.

    Raises:
        ModelError: the index cannot be read or is invalid, or names a file that is missing or outside the
            folder.
    """
    content = read_json(index)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"model {path!r}: {index} has no weight_map with the file of each tensor; {AGAIN}")
    if not isinstance(content.get("metadata"), dict):
        raise ModelError(
            f'model {path!r}: {index} has no metadata, which transformers needs; add a "metadata": {{}}, or {AGAIN}'
        )
    for tensor, name in weight_map.items():
        if not is_inside(name):
            raise ModelError(
                f"model {path!r}: {index} says that {tensor:.80} is in {name!r:.80}; it has to name a file of the model's folder"
            )
    names = sorted(set(weight_map.values()))
    folder = Path(path)
    missing = [name for name in names if not (folder / name).is_file()] if folder.is_dir() else []
    if missing:
        rest = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
        raise ModelError(
            f"model {path!r} lacks {', '.join(missing[:MAX_NAMES])}{rest} of the {len(names)} files that {index.name} "
            f"names; {AGAIN}"
        )
    return names
