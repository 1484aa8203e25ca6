"""The source of one model's weights."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel

from llmfw.core.interfaces.weight_loader import StoredTensor


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A model with its weights.

    Attributes:
        module: the model.
        info: transformers' report of names and shapes.
        stored: formats of the stored tensors, by name.
    """

    module: PreTrainedModel
    info: Mapping[str, Any]
    stored: Mapping[str, StoredTensor]


class WeightSource(ABC):
    """The weights of a model, which can be listed and loaded several times.

    Args:
        path: the model's folder, or a hub id.

    Attributes:
        path: the constructor's argument.
        reads_safetensors: whether damaged safetensors files in the folder can make loading fail.
    """

    reads_safetensors = True

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def stored(self) -> dict[str, StoredTensor]:
        """Return the formats of the stored tensors, by name, without reading their numbers.

        Raises:
            ModelError: the files are damaged, incomplete or contradictory.
            ComponentError: the weight loader is faulty.
        """

    @abstractmethod
    def load(
        self,
        auto_class: Any,
        hf_config: Any,
        check: Callable[[Mapping[str, StoredTensor]], None],
        **options: Any,
    ) -> LoadedWeights:
        """Return the model with its weights on the CPU.

        Args:
            auto_class: class of transformers that loads the model, such as `AutoModelForCausalLM`.
            hf_config: the model's config.
            check: function that raises ModelError if the formats of the stored tensors are wrong, before the model
                is built.
            options: further arguments of `from_pretrained`.

        Raises:
            ModelError, ComponentError: as in `stored`.
            Exception: whatever transformers raises.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Callable[[str], torch.Tensor]]:
        """Return a context with a function that returns a stored tensor by its name.

        The tensors may be mapped from files, and must not be changed. In the context, `stored` lists all tensors that
        the function can read.

        Raises:
            ModelError, ComponentError: as in `stored`.
        """

    @abstractmethod
    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the stored tensors whose names match a pattern, with their names.

        Raises:
            ModelError, ComponentError: as in `stored`.
        """

    @abstractmethod
    def version(self) -> str:
        """Return an id of the weights; see `weight_version`."""
