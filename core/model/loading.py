"""Decides which parts of a checkpoint to load and how, and loads them as a transformers module."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import logging as transformers_logging

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.plugin.registry import Registry

from .checked_load import load_checked, read_config
from .device.devices import available_memory, gigabytes
from .device.dtype_choice import choose_dtype
from .failure.load_failure import why_not
from .quantization.chosen_scheme import ChosenScheme
from .quantization.quantize import QuantizedSize, check_quantizable, quantize
from .quantized_formats.format_choice import dequantizing, format_names
from .weights.differences import Differences
from .weights.weight_choice import choose_weights
from .weights.weight_source import WeightSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loading:
    """The plan for loading a checkpoint. Decided before any weights are read.

    Attributes:
        model: the model's folder or hub id.
        hf_config: the model's config.
        auto_class: class of transformers that loads the model, such as `AutoModelForCausalLM`.
        weights: source of the weights; None: the weights are random.
        dtype: dtype of the weights before they are quantized.
        device: target device.
        scheme: quantization scheme; None: the weights stay as they are.
    """

    model: str
    hf_config: Any
    auto_class: Any
    weights: WeightSource | None
    dtype: torch.dtype
    device: torch.device
    scheme: ChosenScheme | None = None

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        device: torch.device,
        registry: Registry,
        scheme: ChosenScheme | None,
        class_for: Callable[[Any], Any],
    ) -> Loading:
        """Decide what to load of the config's model. Reads the model's config, and no weights.

        Args:
            scheme: quantization scheme; None: the weights stay as they are.
            class_for: function that returns the auto class for a model's config. Raises ModelError if the model
                cannot be served.

        Raises:
            ModelError: the model has no usable config, or cannot be served.
            ConfigError: the dtype, load format, weight loader or scheme does not fit the model.
            ComponentError: the weight loader or the scheme is faulty.
        """
        weights = choose_weights(config, registry)
        hf_config = read_config(config.model, format_names(registry))
        auto_class = class_for(hf_config)
        dtype = choose_dtype(config.dtype, _stored_dtype(hf_config), device)
        check_quantizable(scheme, hf_config, config.model, device, dtype)
        weights, hf_config = dequantizing(weights, hf_config, registry)
        return cls(config.model, hf_config, auto_class, weights, dtype, device, scheme)

    def quantize(self, module: Any) -> QuantizedSize:
        """Quantize a loaded module if a scheme is chosen; return the size of the quantized weights."""
        return QuantizedSize() if self.scheme is None else quantize(module, self.scheme)

    def blaming_scheme(self) -> AbstractContextManager[None]:
        """Return a context that blames the scheme for a ModelError that one of its modules has caused."""
        return nullcontext() if self.scheme is None else self.scheme.blamed()


def _stored_dtype(hf_config: Any) -> Any:
    """Return the dtype that a config names for the text part or the whole model; None if there is none.

    Gemma 3's configs name the dtype of the whole model.
    """
    parts = (hf_config.get_text_config(decoder=True), hf_config)
    return next((found for part in parts if (found := getattr(part, "dtype", None))), None)


def quiet_transformers() -> None:
    """Turn off transformers' output while it loads a model, except its progress on a terminal."""
    transformers_logging.set_verbosity_error()
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def load_module(loading: Loading, **options: Any) -> tuple[PreTrainedModel, Differences]:
    """Load a module, or draw its weights at random; return it, and its differences from the files.

    Args:
        options: further arguments of transformers' `from_pretrained` and `from_config`.

    Returns:
        The module in evaluation mode, on its device, and the differences, which the caller judges.

    Raises:
        ModelError: the model cannot be loaded or built, or its weights contain NaN or infinity.
        ComponentError: the weight loader is faulty.
    """
    options = {"dtype": loading.dtype, **_attention_for(loading.hf_config), **options}
    if loading.weights is None:
        module, differences = _random_module(loading, options), Differences()
    else:
        module, differences = load_checked(
            loading.auto_class, loading.weights, loading.hf_config, loading.device, **options
        )
    return module.eval().requires_grad_(False), differences


def _attention_for(hf_config: Any) -> dict[str, str]:
    """Return the arguments that make transformers compute a model's attention correctly; usually none.

    In transformers 5.17, the default attention of a model with a soft cap (Gemma 2) ignores the cap.
    """
    text_config = hf_config.get_text_config(decoder=True)
    has_cap = getattr(text_config, "attn_logit_softcapping", None) is not None
    return {"attn_implementation": "eager"} if has_cap else {}


def _random_module(loading: Loading, options: dict[str, Any]) -> PreTrainedModel:
    """Draw weights at random on the device, so that none of them passes through the host."""
    try:
        torch.manual_seed(0)
        with torch.device(loading.device):
            module: PreTrainedModel = loading.auto_class.from_config(loading.hf_config, **options)
        return module.to(loading.device)
    except Exception as error:
        reason = why_not(loading.model, loading.hf_config, error)
        raise ModelError(f"model {loading.model!r} cannot be built: {reason}") from error


def weight_bytes(module: nn.Module, quantized: QuantizedSize) -> int:
    """Return the size of a module's weights in bytes, including quantized weights."""
    return quantized.num_bytes + sum(parameter.nbytes for parameter in module.parameters())


def log_loaded(loading: Loading, module: nn.Module, num_bytes: int, started: float) -> None:
    """Log that a model is loaded.

    Args:
        num_bytes: size of its weights in bytes.
        started: time at which loading started, from `time.perf_counter`.
    """
    logger.info(
        "Load weight end. type=%s, dtype=%s, quantization=%s, avail mem=%s, mem usage=%s, elapsed=%.2f s",
        *(type(module).__name__, loading.dtype, loading.scheme and loading.scheme.entry.name),
        *(gigabytes(available_memory(loading.device)), gigabytes(num_bytes)),
        time.perf_counter() - started,
    )
