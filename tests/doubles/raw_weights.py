"""A made-up format of weights: an index in JSON, and files with the numbers of one tensor after the other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from llmfw.core import ModelError, StoredTensor, WeightLoader

INDEX = "weights.json"
NUM_FILES = 2


def save(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors into a folder, in two files with an index."""
    index = {}
    files = {f"part-{i}.raw": bytearray() for i in range(NUM_FILES)}
    for i, (name, tensor) in enumerate(tensors.items()):
        file = f"part-{i % NUM_FILES}.raw"
        dtype = str(tensor.dtype).removeprefix("torch.")
        index[name] = {"dtype": dtype, "shape": list(tensor.shape), "file": file, "start": len(files[file])}
        files[file] += tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    (folder / INDEX).write_text(json.dumps(index))


class RawWeights(WeightLoader):
    """Reads what `save` writes."""

    class Options(WeightLoader.Options, frozen=True):
        """
        Attributes:
            prefix: text that the format's names lack.
        """

        prefix: str = ""

    options: Options
    conformance: ClassVar = {"save": save}

    def __init__(self, folder: Path, options: Options) -> None:
        super().__init__(folder, options)
        self._index: dict[str, Any] | None = None

    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return (folder / INDEX).exists()

    @property
    def index(self) -> dict[str, Any]:
        """The index: name → what is known of the tensor."""
        if self._index is None:
            try:
                self._index = json.loads((self.folder / INDEX).read_text())
            except (OSError, ValueError) as error:
                raise ModelError(f"{self.folder / INDEX} cannot be read: {error}; save it again") from error
        return self._index

    def files(self) -> list[str]:
        return [INDEX, *{each["file"] for each in self.index.values()}]

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        for name, about in self.index.items():
            if "/" in about["file"]:
                raise ModelError(f"{self.folder / INDEX} names {about['file']}, which is not in the folder")
            yield self.options.prefix + name, StoredTensor(about["dtype"], tuple(about["shape"]))

    def read(self, name: str) -> torch.Tensor:
        about = self.index[name.removeprefix(self.options.prefix)]
        dtype: torch.dtype = getattr(torch, about["dtype"])
        size = math.prod(about["shape"]) * dtype.itemsize
        file = self.folder / about["file"]
        try:
            with file.open("rb") as opened:
                opened.seek(about["start"])
                content = bytearray(opened.read(size))
        except OSError as error:
            raise ModelError(f"{file} cannot be read: {error.strerror}; save it again") from error
        if len(content) < size:
            raise ModelError(f"{file} ends within {name}; save it again")
        numbers = torch.frombuffer(content, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        return numbers.reshape(about["shape"])
