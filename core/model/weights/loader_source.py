"""Weights that a plugin's weight loader reads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor, WeightLoader

from .isolated_loader import IsolatedLoader, LoaderGuard
from .lazy_tensors import LazyTensor, build_from
from .weight_source import LoadedWeights, WeightSource
from .weight_version import version_of


class LoaderSource(WeightSource):
    """Weights that a weight loader reads from a folder.

    Args:
        component: class of the loader.
        options: options of the loader.
        guard: runs the loader's code.
    """

    reads_safetensors = False

    def __init__(self, component: type[WeightLoader], options: Any, guard: LoaderGuard) -> None:
        super().__init__(guard.path)
        self._component = component
        self._options = options
        self._guard = guard

    def stored(self) -> dict[str, StoredTensor]:
        with self._opened() as loader:
            return loader.stored()

    def load(
        self,
        auto_class: Any,
        hf_config: Any,
        check: Callable[[Mapping[str, StoredTensor]], None],
        **options: Any,
    ) -> LoadedWeights:
        with self._opened() as loader:
            stored = loader.stored()
            check(stored)
            state = {
                name: LazyTensor(each, partial(loader.read, name, each)) for name, each in stored.items()
            }
            module, info = build_from(state, auto_class, hf_config, self.path, **options)
        return LoadedWeights(module, info, stored)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[[str], torch.Tensor]]:
        with self._opened() as loader:
            stored = loader.stored()
            yield lambda name: loader.read(name, stored[name])

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, torch.Tensor]]:
        with self._opened() as loader:
            for name, tensor in loader.stored().items():
                if pattern.search(name):
                    yield name, loader.read(name, tensor)

    def version(self) -> str:
        with self._opened() as loader:
            return version_of(loader.files())

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IsolatedLoader]:
        """Build the loader for a block, and close it afterwards.

        If both the block and `close` fail, the block's error is raised.
        """
        with self._guard.asking("__init__()"):
            built = self._component(Path(self.path), self._options)
        loader = IsolatedLoader(built, self._guard)
        try:
            yield loader
        except BaseException:
            with contextlib.suppress(ModelError, ComponentError):
                loader.close()
            raise
        loader.close()
