"""Reads the header of a GGUF file, and refuses a header whose sizes or counts do not fit the file.

The format, version 2 or 3, little-endian: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Reads no
tensor. The limits below bound memory, even for a malicious file.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from llmfw.core import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a metadata type → its code in `struct`."""
STRING, ARRAY = 8, 9
MAX_ELEMENTS = 2_000_000
"""Maximum number of elements of all arrays. 256,000 tokens with scores, types and merges need half."""
MAX_ENTRIES = 100_000
"""Maximum number of metadata entries, and of tensors."""
MAX_TEXT = 16 * 2**20
"""Maximum length of a text in bytes."""
MAX_DIMENSIONS = 4
MAX_SHOWN_ARRAY = 4096


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of the file.

    Attributes:
        name: llama.cpp's name, such as "blk.0.attn_q.weight".
        shape: sizes as torch orders them: the last dimension is contiguous.
        kind: number of the tensor's type, as in `gguf.GGMLQuantizationType`.
        offset: position of the first byte in the file.
        num_bytes: size in the file.
        file: the file, which may be a part of the model.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    num_bytes: int
    file: Path


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a GGUF file.

    Attributes:
        metadata: values by key; for an array with more than 4,096 numbers, only the length of the array.
        tensors: tensors by name.
    """

    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_header(file: Path) -> Header:
    """Read the header of a file.

    Raises:
        ModelError: the file cannot be read, is not a GGUF file of version 2 or 3, or is damaged.
    """
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _Reader(file, view).read()
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error
    except _DamageError as error:
        raise ModelError(f"{file} is not a GGUF file that can be read: {error}; download it again") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise ModelError(f"{file} is empty; download it again") from error


class _DamageError(Exception):
    """The file is damaged; the message says how."""


class _Reader:
    """Reads a mapped file from its start."""

    def __init__(self, file: Path, view: mmap.mmap) -> None:
        self._file = file
        self._view = view
        self._size = len(view)
        self._at = 0
        self._elements = 0

    def read(self) -> Header:
        if self._take(4) != MAGIC:
            raise _DamageError("it does not start with GGUF")
        (version,) = self._unpack("I")
        if version not in VERSIONS:
            raise _DamageError(f"its version is {version}, and llmfw reads 2 and 3, little-endian")
        num_tensors, num_entries = self._unpack("QQ")
        for count, what in ((num_tensors, "tensors"), (num_entries, "metadata entries")):
            if count > MAX_ENTRIES:
                raise _DamageError(f"it claims {count:,} {what}; at most {MAX_ENTRIES:,} are read")
        metadata = self._metadata(num_entries)
        return Header(metadata, self._tensors(num_tensors, metadata))

    def _metadata(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self._text()
            (kind,) = self._unpack("I")
            if key in found:
                raise _DamageError(f"metadata {key!r:.80} is there twice")
            found[key] = self._array(key) if kind == ARRAY else self._value(kind, key)
        return found

    def _value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self._text()
        if kind not in SCALARS:
            raise _DamageError(f"metadata {key!r:.80} has the unknown type {kind}")
        return self._unpack(SCALARS[kind])[0]

    def _array(self, key: str) -> Any:
        kind, count = self._unpack("IQ")
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise _DamageError(f"its arrays claim more than {MAX_ELEMENTS:,} elements, at {key!r:.80}")
        if kind == STRING:
            return [self._text() for _ in range(count)]
        if kind not in SCALARS:
            raise _DamageError(f"metadata {key!r:.80} is an array of the type {kind}, which is not read")
        values = self._unpack(f"{count}{SCALARS[kind]}")
        return list(values) if count <= MAX_SHOWN_ARRAY else count

    def _tensors(self, count: int, metadata: dict[str, Any]) -> dict[str, TensorEntry]:
        listed = [self._tensor() for _ in range(count)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise _DamageError(f"general.alignment is {alignment!r:.40}; it must be a power of 2")
        start = -(-self._at // alignment) * alignment
        found: dict[str, TensorEntry] = {}
        for name, shape, kind, offset in listed:
            if name in found:
                raise _DamageError(f"tensor {name!r:.80} is there twice")
            entry = TensorEntry(name, shape, kind, start + offset, _num_bytes(name, shape, kind), self._file)
            if entry.offset + entry.num_bytes > self._size:
                raise _DamageError(
                    f"it has {self._size:,} bytes, and tensor {name!r:.80} ends at {entry.offset + entry.num_bytes:,}"
                )
            found[name] = entry
        return found

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text()
        (dimensions,) = self._unpack("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise _DamageError(f"tensor {name!r:.80} claims {dimensions} dimensions; 1 to 4 are read")
        sizes = self._unpack(f"{dimensions}Q")
        kind, offset = self._unpack("IQ")
        return name, tuple(reversed(sizes)), kind, offset

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        if length > MAX_TEXT:
            raise _DamageError(f"a text claims {length:,} bytes")
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise _DamageError(f"a text is not UTF-8: {error.reason}") from error

    def _unpack(self, code: str) -> tuple[Any, ...]:
        form = struct.Struct(f"<{code}")
        return form.unpack(self._take(form.size))

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > self._size:
            raise _DamageError(f"it ends within its header, at {self._size:,} bytes")
        found = self._view[self._at : end]
        self._at = end
        return found


def _num_bytes(name: str, shape: tuple[int, ...], kind: int) -> int:
    """Return the size of a tensor in the file."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        raise _DamageError(f"tensor {name!r:.80} has the unknown type {kind}") from None
    if shape[-1] % block or 0 in shape:
        raise _DamageError(f"tensor {name!r:.80} has rows of {shape[-1]:,} numbers, and blocks of {block}")
    return prod(shape) // block * block_bytes
