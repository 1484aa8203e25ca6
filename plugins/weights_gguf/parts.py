"""Reads a model that is split into several GGUF files.

llama.cpp names the parts `NAME-00001-of-00003.gguf` and so on. The first part has the metadata of the model; each
part has the number of parts, its own number, counted from 0, and the number of tensors of all parts:

    split.count          3
    split.no             0
    split.tensors.count  291
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from llmfw.core import ModelError

from .header import Header, TensorEntry, read_header

NAME = re.compile(r"(?P<model>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

OWN_KEYS = ("split.no", "general.alignment")
"""Metadata in which parts of a model may differ."""


def part_files(file: Path) -> list[Path]:
    """Return the files of all parts of the model that a file starts, in order; the file alone if it is whole.

    Raises:
        ModelError: the file is a part, but not the first one.
    """
    found = NAME.fullmatch(file.name)
    if found is None:
        return [file]
    number, count = int(found["number"]), int(found["count"])
    files = [file.with_name(f"{found['model']}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]
    if number != 1 or not files:
        first = f"{found['model']}-00001-of-{count:05d}.gguf"
        raise ModelError(f"{file} is part {number} of {count} of a model; give the first part, {first}")
    return files


def read_parts(file: Path) -> Header:
    """Read the headers of all parts of a model as one header: the first part's metadata, and all tensors.

    Raises:
        ModelError: a part is missing or damaged, or belongs to another model.
    """
    files = part_files(file)
    if missing := [each.name for each in files if not each.exists()]:
        shown = ", ".join(missing[:4]) + (", …" if len(missing) > 4 else "")
        raise ModelError(
            f"{file} is part 1 of {len(files)} of a model, and {shown} is not beside it; download all parts into one folder"
        )
    first = read_header(file)
    _check_place(file, first, 0, len(files))
    tensors = dict(first.tensors)
    for i, part in enumerate(files[1:], 1):
        header = read_header(part)
        _check_place(part, header, i, len(files))
        _check_model(part, header.metadata, file, first.metadata)
        if twice := next(iter(tensors.keys() & header.tensors.keys()), None):
            raise _mixed(part, f"has the tensor {twice!r:.80}, as a part before it has")
        tensors |= header.tensors
    _check_count(file, first.metadata, tensors, len(files))
    return Header(first.metadata, tensors)


def _check_place(part: Path, header: Header, number: int, count: int) -> None:
    told = header.metadata.get("split.count", 1), header.metadata.get("split.no", 0)
    if told == (count, number) or (count == 1 and told[0] in (0, 1)):
        return
    if count == 1:
        raise ModelError(
            f"{part} is one of {told[0]!r:.40} parts of a model, and its name does not say which; parts have names such as "
            "NAME-00001-of-00003.gguf"
        )
    raise _mixed(
        part,
        f"has the split.no {told[1]!r:.40} and the split.count {told[0]!r:.40}; by its name, they are {number} and {count}",
    )


def _check_model(part: Path, found: dict[str, Any], first: Path, expected: dict[str, Any]) -> None:
    """Refuse a part whose metadata differs from the first part's. Most parts repeat none of it."""
    for key, value in found.items():
        if key not in OWN_KEYS and key in expected and expected[key] != value:
            raise _mixed(part, f"has the {key:.80} {value!r:.40}; {first.name} has {expected[key]!r:.40}")


def _check_count(file: Path, metadata: dict[str, Any], tensors: dict[str, TensorEntry], count: int) -> None:
    expected = metadata.get("split.tensors.count")
    if count > 1 and expected != len(tensors):
        raise _mixed(
            file, f"has the split.tensors.count {expected!r:.40}, and its parts have {len(tensors)} tensors"
        )


def _mixed(part: Path, reason: str) -> ModelError:
    return ModelError(
        f"{part} {reason}; the parts are of different models or splits: download all of them again"
    )
