"""Finds the files of both formats: a single file, or shards and an index with the names of the shards."""

from __future__ import annotations

import os
from pathlib import Path

from llmfw.core.model.files.checkpoint import WEIGHT_FILES, weight_files


def has_files(folder: Path, file_format: str) -> bool:
    """Return whether a folder has the single file of a format, or an index. Does not check the file."""
    name = WEIGHT_FILES[file_format]
    return any(os.path.lexists(folder / each) for each in (name, f"{name}.index.json"))


def file_names(folder: Path, file_format: str) -> list[str]:
    """Return the names of a format's files: the weights, and the index if there is no single file.

    Raises:
        ModelError: the index is invalid, or names a file that is missing or outside the folder.
    """
    names = [str(file.relative_to(folder)) for file in weight_files(str(folder), file_format)]
    index = f"{WEIGHT_FILES[file_format]}.index.json"
    has_index = WEIGHT_FILES[file_format] not in names and (folder / index).is_file()
    return [*names, index] if has_index else names
