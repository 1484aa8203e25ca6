"""The quantization scheme that `--quantization` names. Checks all that it returns.

A scheme comes from a plugin. Before the server starts, each fault of the scheme becomes a ComponentError of
one line that names the plugin and the layer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.interfaces.quantization_scheme import LinearLayer, QuantizationScheme
from llmfw.core.plugin.blame import component_at_fault
from llmfw.core.plugin.choice import create
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.one_line import one_line
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.plugin.torch_state import keeping_torch_state

from .layer_memory import check_memory, check_shared_memory
from .layer_trial import EmbeddingTrial, LinearTrial

logger = logging.getLogger(__name__)

KIND = "quantization_scheme"
_ADVICE = "choose another --quantization, or leave the option out"


def choose_scheme(config: EngineConfig, registry: Registry) -> ChosenScheme | None:
    """Build the scheme that the config names; None: weights stay as they are.

    Raises:
        ConfigError: the scheme or an option does not exist, or options are given without a scheme.
        ComponentError: the scheme cannot be imported or built.
    """
    if config.quantization is None:
        refuse_options(KIND, config.options, "no scheme is chosen; --quantization NAME chooses one")
        return None
    created = create(registry, KIND, config.quantization, config.options)
    return ChosenScheme(created.entry, created.component)


class ChosenScheme:
    """Wraps a quantization scheme.

    Args:
        entry: registry entry of the scheme.
        scheme: the scheme.

    Raises:
        ComponentError: its tolerance is not a number above 0.
    """

    def __init__(self, entry: Entry, scheme: QuantizationScheme) -> None:
        self.entry = entry
        self._scheme = scheme
        self._tried: set[tuple[int, int, bool, bool]] = set()
        tolerance: Any = scheme.tolerance
        if type(tolerance) not in (int, float) or not 0 < tolerance < math.inf:
            raise ComponentError(f"{entry} has the tolerance {tolerance!r:.80}; it must be a number above 0")

    @property
    def shares_head(self) -> bool:
        """Whether the scheme can quantize a head that shares its weight with the embeddings."""
        return type(self._scheme).embedding is not QuantizationScheme.embedding

    def check_support(self, device: torch.device, dtype: torch.dtype) -> None:
        """Raise ConfigError if the scheme does not support a device or dtype."""
        with self._errors("unsupported()"):
            reason: Any = self._scheme.unsupported(str(device), dtype)
            if not (reason is None or (isinstance(reason, str) and reason.strip())):
                raise WrongReturnError(f"it returned {reason!r:.80} in place of a reason or None")
        if reason is not None:
            raise ConfigError(f"{self.entry} cannot be used: {one_line(reason)}; {_ADVICE}")

    def num_bytes(self, layer: LinearLayer) -> int | None:
        """Return the size of a layer's quantized weight in bytes; None: the layer stays as it is.

        Raises:
            ComponentError: the scheme failed.
        """
        with self._errors("num_bytes()", layer):
            size: Any = self._scheme.num_bytes(layer)
            if size is not None and (type(size) is not int or size < 1):
                raise WrongReturnError(f"it returned {size!r:.80} in place of a number of bytes or None")
        return size

    def quantize(
        self, layer: LinearLayer, num_bytes: int, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> nn.Module:
        """Return a module that computes a layer with a quantized weight.

        Args:
            num_bytes: return value of `num_bytes` for the layer.
            weight, bias: weight and bias of the layer.

        Raises:
            ComponentError: the scheme failed, or its module computes something else or has another size.
        """
        trial = LinearTrial(weight, bias)
        kind = (layer.out_features, layer.in_features, bias is not None, layer.is_head)
        with self._errors("quantize()", layer):
            module: Any = self._scheme.quantize(layer, weight, bias)
            _check_module(module)
            module = module.eval().requires_grad_(False)
            check_memory(module, num_bytes, bias, layer.dtype)
            trial.check(module, self._scheme.tolerance, in_other_shapes=kind not in self._tried)
        self._tried.add(kind)
        found: nn.Module = module
        return found

    def embedding(self, layer: LinearLayer, head: nn.Module, trial: EmbeddingTrial) -> nn.Module:
        """Return an embedding layer that shares the weight of a quantized head.

        Args:
            layer: the head before it was quantized.
            head: the quantized head.
            trial: embeddings before the weight was quantized.

        Raises:
            ComponentError: the scheme failed, or its module returns other embeddings or has memory of its own.
        """
        with self._errors("embedding()", layer):
            module: Any = self._scheme.embedding(head)
            _check_module(module)
            module = module.eval().requires_grad_(False)
            check_shared_memory(module, head)
            trial.check(module, self._scheme.tolerance)
        found: nn.Module = module
        return found

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Convert a ModelError in the block to a ComponentError if a module of the scheme has raised its cause."""
        try:
            yield
        except ModelError as error:
            if component_at_fault(error, [self.entry]) is None:
                raise
            raise ComponentError(f"with {self.entry}, {error}; {_ADVICE}") from error

    @contextmanager
    def _errors(self, where: str, layer: LinearLayer | None = None) -> Iterator[None]:
        """Convert any exception in the block to a ComponentError that names the scheme and the layer."""
        place = where if layer is None else f"{where} of layer {layer.name}"
        try:
            with torch.inference_mode(), keeping_torch_state(lambda: f"calling {self.entry}"):
                yield
        except BaseException as error:  # a foreign component may raise anything
            raise_if_process_ends(error)
            logger.debug("%s failed", self.entry, exc_info=True)
            raise ComponentError(f"{self.entry} failed in {place}: {_reason_of(error)}; {_ADVICE}") from error


def _reason_of(error: BaseException) -> str:
    text = str(error).strip()
    if not isinstance(error, WrongReturnError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return one_line(text)


def _check_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise WrongReturnError(f"it returned {module!r:.80} in place of a torch.nn.Module")
