"""The weight loader `bin`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from llmfw.core import ModelError, StoredTensor, WeightLoader
from llmfw.core.model.files.checkpoint import WEIGHT_FILES, read_tensors, weight_files
from llmfw.core.model.files.damaged_files import pickle_failure

from .folder_files import file_names, has_files

FORMAT = "bin"
PICKLE = b"\x80"
"""First byte of a file in torch's older format: a bare pickle, which cannot be mapped. The newer format is a
zip."""


def save(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors into a folder in this format."""
    torch.save(dict(tensors), folder / WEIGHT_FILES[FORMAT])


class BinLoader(WeightLoader):
    """Reads torch's pickled files: `pytorch_model.bin`, or the shards in `pytorch_model.bin.index.json`.

    Unpickles only tensors and containers. Refuses a file that would call any other code.
    """

    transformers_format = "bin"
    conformance: ClassVar = {"save": save}

    def __init__(self, folder: Path, options: WeightLoader.Options) -> None:
        super().__init__(folder, options)
        self._opened: dict[str, torch.Tensor] = {}

    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return has_files(folder, FORMAT)

    def files(self) -> list[str]:
        return file_names(self.folder, FORMAT)

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        """Yield the formats of the tensors. A file in torch's older format is left out."""
        for file in weight_files(str(self.folder), FORMAT):
            if not _is_older(file):
                _mapped(file)
        yield from read_tensors(str(self.folder), FORMAT).items()

    def read(self, name: str) -> torch.Tensor:
        if not self._opened:
            for file in weight_files(str(self.folder), FORMAT):
                self._opened.update(_mapped(file))
        return self._opened[name]

    def close(self) -> None:
        self._opened.clear()


def _is_older(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(1) == PICKLE
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error


def _mapped(file: Path) -> dict[str, Any]:
    """Return the contents of a file, mapped into memory. Raises ModelError if the file cannot be read."""
    try:
        found: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many classes for damaged files
        raise ModelError(f"{file} cannot be read: {pickle_failure(error)}") from error
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            layout = str(value.layout).removeprefix("torch.")
            raise ModelError(
                f"{file} holds {name} in the layout {layout}; store it dense (tensor.to_dense())"
            )
    return found
