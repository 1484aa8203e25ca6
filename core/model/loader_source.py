"""Weights that a plugin's weight loader reads."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.auto_factory import _get_model_class

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor, WeightLoader

from .isolated_loader import IsolatedLoader, LoaderGuard
from .stored_dtypes import safetensors_name, torch_dtype
from .weight_source import LoadedWeights, WeightSource
from .weight_version import version_of

SYNC_VARIABLE = "HF_DEACTIVATE_ASYNC_LOAD"
"""Environment variable with which transformers reads tensors in the calling thread, each when it needs it."""


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
        model_class, config = _class_and_config(auto_class, hf_config)
        with self._opened() as loader, _reading_in_this_thread():
            stored = loader.stored()
            check(stored)
            state = {name: LazyTensor(loader, name, each) for name, each in stored.items()}
            module, info = model_class.from_pretrained(
                None, config=config, state_dict=state, output_loading_info=True, **options
            )
        module.config.name_or_path = self.path
        return LoadedWeights(module, info, stored)

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
        """Build the loader for a block, and close it afterwards. An error of the block is raised, not one of `close`."""
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


class LazyTensor:
    """A stored tensor that is read when transformers needs it: the part of safetensors' slices that it uses.

    Args:
        loader: reads the tensor.
        name: name of the tensor.
        stored: format of the tensor.
    """

    def __init__(self, loader: IsolatedLoader, name: str, stored: StoredTensor) -> None:
        self._loader = loader
        self._name = name
        self._stored = stored

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Read the tensor, and return a part of it; `...` is all of it."""
        return self._loader.read(self._name, self._stored)[index]

    def get_dtype(self) -> str:
        """Return the dtype, named as in safetensors."""
        dtype = torch_dtype(self._stored.dtype)
        assert dtype is not None  # `IsolatedLoader.stored` has checked it
        return safetensors_name(dtype)

    def get_shape(self) -> list[int]:
        """Return the size of each dimension."""
        return list(self._stored.shape)


def _class_and_config(auto_class: Any, hf_config: Any) -> tuple[Any, Any]:
    """Return the model class that an auto class takes for a config, and the config to give to it.

    Auto classes take no tensors, only paths. As they do, takes the text config of a config for several kinds of input,
    if the model is one for text.
    """
    if type(hf_config) not in auto_class._model_mapping:
        raise ValueError(f"{auto_class.__name__} of transformers has no class for {hf_config.model_type}")
    model_class = _get_model_class(hf_config, auto_class._model_mapping)
    text_class = hf_config.sub_configs.get("text_config")
    if text_class is None or getattr(model_class, "config_class", None) != text_class:
        return model_class, hf_config
    text_config = hf_config.get_text_config()
    if (quantization := getattr(hf_config, "quantization_config", None)) is not None:
        text_config.quantization_config = quantization
    return model_class, text_config


@contextlib.contextmanager
def _reading_in_this_thread() -> Iterator[None]:
    """Have transformers read each tensor in this thread, and only when it puts it into the model.

    Its own threads would call the loader from several threads at once, and read ahead without a bound on memory.
    """
    before = os.environ.get(SYNC_VARIABLE)
    os.environ[SYNC_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SYNC_VARIABLE]
        else:
            os.environ[SYNC_VARIABLE] = before
