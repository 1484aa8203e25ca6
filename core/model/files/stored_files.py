"""Reads tensors by name from safetensors or .bin files, which stay mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import torch
from safetensors import safe_open

from llmfw.core.base.errors import ModelError


class StoredFiles:
    """The weight files of a model. A context manager; tensors can be read inside it.

    Args:
        files: safetensors files, or .bin files in torch's newer format.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._stack = ExitStack()
        self._where: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for file in self._files:
            self._where.update(self._open(file))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._where.clear()
        self._stack.close()

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor, which the caller must not change.

        Raises:
            ModelError: the files have no tensor of this name.
        """
        if name not in self._where:
            raise ModelError(f"no weight file can be read for {name}; download the model again")
        found = self._where[name]
        return found if isinstance(found, torch.Tensor) else cast("torch.Tensor", found.get_tensor(name))

    def _open(self, file: Path) -> dict[str, Any]:
        """Return the source of a file's tensors, by name: the open safetensors file, or the tensor itself."""
        if file.suffix == ".safetensors":
            opened = self._stack.enter_context(safe_open(file, "pt"))
            return dict.fromkeys(opened.keys(), opened)
        return dict(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
