"""Weights that transformers reads itself, from safetensors or .bin files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from safetensors import safe_open

from llmfw.core.interfaces.weight_loader import StoredTensor

from ..files.checkpoint import read_tensors, weight_files
from ..files.model_folder import model_files
from ..files.stored_files import StoredFiles
from .weight_source import LoadedWeights, WeightSource
from .weight_version import weight_version


class TransformersSource(WeightSource):
    """Weights in the files of a folder or hub id that transformers reads itself.

    Args:
        path: the model's folder, or a hub id.
        file_format: "safetensors" or "bin"; None: the format that transformers prefers.
        list_tensors: function that returns the formats of the stored tensors; None: llmfw's own.
    """

    def __init__(
        self,
        path: str,
        file_format: str | None = None,
        list_tensors: Callable[[], dict[str, StoredTensor]] | None = None,
    ) -> None:
        super().__init__(path)
        self._format = file_format
        self._list_tensors = list_tensors

    def stored(self) -> dict[str, StoredTensor]:
        if self._list_tensors is not None:
            return self._list_tensors()
        return read_tensors(self.path, self._format)

    def load(
        self,
        auto_class: Any,
        hf_config: Any,
        check: Callable[[Mapping[str, StoredTensor]], None],
        **options: Any,
    ) -> LoadedWeights:
        stored = self.stored()
        check(stored)
        if self._format is not None:
            options["use_safetensors"] = self._format == "safetensors"
        module, info = auto_class.from_pretrained(
            self.path, config=hf_config, output_loading_info=True, trust_remote_code=False, **options
        )
        return LoadedWeights(module, info, stored)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[str], torch.Tensor]]:
        with StoredFiles(weight_files(self.path, self._format, download=True)) as files:
            yield files.read

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for file in sorted(model_files(self.path).glob("*.safetensors")):
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - not a mapping
                    if pattern.search(name):
                        yield name, opened.get_tensor(name)

    def version(self) -> str:
        return weight_version(self.path)
