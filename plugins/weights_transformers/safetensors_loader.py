"""The weight loader `safetensors`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from llmfw.core import ModelError, StoredTensor, WeightLoader
from llmfw.core.model.files.checkpoint import WEIGHT_FILES, read_tensors, stored_in, weight_files
from llmfw.core.model.files.damaged_files import damaged_safetensors

from .folder_files import file_names, has_files

FORMAT = "safetensors"


def save(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors into a folder in this format."""
    save_file(dict(tensors), folder / WEIGHT_FILES[FORMAT])


class SafetensorsLoader(WeightLoader):
    """Reads `model.safetensors`, or the shards of `model.safetensors.index.json`."""

    transformers_format = "safetensors"
    conformance: ClassVar = {"save": save}

    def __init__(self, folder: Path, options: WeightLoader.Options) -> None:
        super().__init__(folder, options)
        self._opened: dict[str, Any] = {}

    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return has_files(folder, FORMAT)

    def files(self) -> list[str]:
        return file_names(self.folder, FORMAT)

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        with self._naming_damage():
            found = read_tensors(str(self.folder), FORMAT)
        yield from found.items()

    def read(self, name: str) -> torch.Tensor:
        with self._naming_damage():
            if not self._opened:
                self._open()
            return cast("torch.Tensor", self._opened[name].get_tensor(name))

    def close(self) -> None:
        self._opened.clear()

    def _open(self) -> None:
        for file in weight_files(str(self.folder), FORMAT):
            opened = safe_open(file, "pt")
            self._opened.update(dict.fromkeys(stored_in(file), opened))

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Raise ModelError with the name of the file if safetensors cannot read a file in the block."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            reason = damaged_safetensors(self.folder) or f"{self.folder}: {error}"
            raise ModelError(f"model {str(self.folder)!r} cannot be loaded: {reason}") from error
