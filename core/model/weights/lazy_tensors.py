"""Builds transformers' models from tensors that are read one at a time, instead of from files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers.models.auto.auto_factory import _get_model_class

from llmfw.core.interfaces.weight_loader import StoredTensor

from ..files.stored_dtypes import safetensors_name, torch_dtype

SYNC_VARIABLE = "HF_DEACTIVATE_ASYNC_LOAD"
"""Environment variable that makes transformers read each tensor in the calling thread, when needed."""


class LazyTensor:
    """A tensor that is read when transformers needs it.

    It has the methods of safetensors' slices that transformers uses.

    Args:
        stored: format of the tensor; its dtype is one that `torch_dtype` knows.
        read: function that returns the tensor.
    """

    def __init__(self, stored: StoredTensor, read: Callable[[], torch.Tensor]) -> None:
        self._stored = stored
        self._read = read

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Read the tensor, and return a part of it; `...` selects the whole tensor."""
        return self._read()[index]

    def get_dtype(self) -> str:
        """Return the dtype, named as in safetensors."""
        dtype = torch_dtype(self._stored.dtype)
        assert dtype is not None
        return safetensors_name(dtype)

    def get_shape(self) -> list[int]:
        """Return the size of each dimension."""
        return list(self._stored.shape)


def build_from(
    tensors: Mapping[str, LazyTensor],
    auto_class: Any,
    hf_config: Any,
    path: str,
    adapt_class: Callable[[Any], Any] = lambda model_class: model_class,
    **options: Any,
) -> tuple[Any, Mapping[str, Any]]:
    """Return a model with these tensors, and transformers' report of names and shapes.

    Args:
        tensors: the tensors, by the names of a checkpoint that transformers reads.
        auto_class: class of transformers that loads the model, such as `AutoModelForCausalLM`.
        hf_config: the model's config.
        path: the model's folder, or a hub id, to be noted in the model's config.
        adapt_class: function that returns the class to build, for the model class that transformers chooses.
        options: further arguments of `from_pretrained`.
    """
    model_class, config = _class_and_config(auto_class, hf_config)
    with _reading_in_this_thread():
        module, info = adapt_class(model_class).from_pretrained(
            None, config=config, state_dict=dict(tensors), output_loading_info=True, **options
        )
    module.config.name_or_path = path
    return module, info


def _class_and_config(auto_class: Any, hf_config: Any) -> tuple[Any, Any]:
    """Return the model class that an auto class takes for a config, and the config to give to it.

    Auto classes accept only paths, not tensors. Like an auto class, this function returns the text config of
    a multimodal config if the model class is for text alone.
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
