"""Weights of which a rank reads its own part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from llmfw.core.interfaces.weight_loader import StoredTensor

from ..weights.lazy_tensors import LazyTensor, build_from
from ..weights.weight_source import LoadedWeights, WeightSource
from .shard_plan import ShardPlan


class ShardedSource(WeightSource):
    """Weights of another source, of which a rank reads its own part.

    transformers builds the model without weights, `ShardPlan` cuts its parameters, and each stored tensor is cut
    when transformers asks for it.

    Args:
        source: source of the whole weights.
        plan: the rank's plan, which each `load` makes anew.
    """

    def __init__(self, source: WeightSource, plan: ShardPlan) -> None:
        super().__init__(source.path)
        self._source = source
        self._plan = plan
        self.reads_safetensors = source.reads_safetensors

    def stored(self) -> dict[str, StoredTensor]:
        return self._source.stored()

    def load(
        self,
        auto_class: Any,
        hf_config: Any,
        check: Callable[[Mapping[str, StoredTensor]], None],
        **options: Any,
    ) -> LoadedWeights:
        stored = self.stored()
        check(stored)
        with self.reading() as read:
            state = {name: _CutTensor(name, each, read, self._plan) for name, each in stored.items()}
            module, info = build_from(
                state, auto_class, hf_config, self.path, adapt_class=partial(_cutting, self._plan), **options
            )
        module.__class__ = type(module).__mro__[1]  # the class that `_cutting` derives from
        return LoadedWeights(module, info, stored)

    def reading(self) -> AbstractContextManager[Callable[[str], torch.Tensor]]:
        return self._source.reading()

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, torch.Tensor]]:
        return self._source.matching(pattern)

    def version(self) -> str:
        return self._source.version()


class _CutTensor(LazyTensor):
    """The rank's part of a tensor, which is read when transformers needs it.

    Args:
        name: name in the files.
        stored: format of the whole tensor.
        read: function that returns the whole tensor, mapped from its file if possible.
        plan: the rank's plan, which is complete once the model is built.
    """

    def __init__(
        self, name: str, stored: StoredTensor, read: Callable[[str], torch.Tensor], plan: ShardPlan
    ) -> None:
        super().__init__(stored, partial(read, name))
        self._name = name
        self._plan = plan

    def __getitem__(self, index: Any) -> torch.Tensor:
        cut = self._plan.cut_of(self._name)
        if cut is None or cut.ranges(self._stored.shape) is None:
            return super().__getitem__(index)
        return cut.of(self._read())[index]

    def get_shape(self) -> list[int]:
        whole, cut = super().get_shape(), self._plan.cut_of(self._name)
        return whole if cut is None or cut.ranges(whole) is None else cut.shape_of(whole)


def _cutting(plan: ShardPlan, model_class: Any) -> Any:
    """Return a subclass of a model's class whose new objects have the parameters of one rank."""

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        model_class.__init__(self, config, *args, **kwargs)
        plan.cut_parameters(self)

    return type(
        model_class.__name__, (model_class,), {"__init__": __init__, "__module__": model_class.__module__}
    )
