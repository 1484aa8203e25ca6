"""Texts of a model's files that name other files of the model, changed so that the names lead elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path


def renamed_files(folder: Path, leads: Sequence[str]) -> Iterator[tuple[str, bytes, str]]:
    """Yield each text of a folder in which the names of another file start with a lead, and that file's name.

    Yields:
        Name of the file with the text, the changed text, and the name of the file that the text names.
    """
    names = [file.name for file in sorted(folder.iterdir()) if file.is_file()]
    for file, named, lead in itertools.product(names, names, leads):
        text = (folder / file).read_bytes()
        if file != named and f'"{named}"'.encode() in text:
            yield file, text.replace(f'"{named}"'.encode(), f'"{lead}{named}"'.encode()), named
