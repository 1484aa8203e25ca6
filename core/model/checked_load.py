"""Reads a model's config, and loads its weights with transformers.

The differences between the model and its files are returned, and the caller decides which of them matter.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.configuration_auto import AutoConfig

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor

from .config.config_file import check_experts, check_numbers, read_settings, refuse_named_weights
from .config.head_numbers import check_heads
from .config.layer_count import layer_count_name
from .config.model_kind import unknown_kind
from .failure.load_failure import explained, why_not
from .files.checkpoint import (
    expert_gaps,
    missing_scales,
    quantization_of,
    refuse_adapters,
    refuse_unknown_quantization,
    unequal_experts,
)
from .weights.differences import Differences, differences_of, in_order, list_names
from .weights.weight_source import WeightSource

logger = logging.getLogger(__name__)

WIDE = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that can hold NaN and infinity."""


def read_config(path: str, formats: Collection[str] = ()) -> Any:
    """Return a model's config.

    Args:
        path: the model's folder, or a hub id.
        formats: names of the quantized formats that plugins read.

    Raises:
        ModelError: the config does not exist, cannot be read, has impossible or contradictory numbers, names
            the file of the weights, or names an unknown quantization method; or the model has an adapter.
    """
    refuse_adapters(path)
    settings = read_settings(path)
    check_numbers(path, settings)
    refuse_named_weights(path, settings)
    try:
        hf_config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except Exception as error:
        if settings and (reason := unknown_kind(settings)):
            raise ModelError(f"model {path!r} cannot be served: {reason}") from error
        raise ModelError(
            f"model {path!r} has no config that transformers can read: {explained(error)}"
        ) from error
    refuse_unknown_quantization(hf_config, path, formats)
    text_config = hf_config.get_text_config(decoder=True)
    check_experts(path, text_config)
    check_heads(path, text_config)
    return hf_config


def load_checked(
    auto_class: Any, source: WeightSource, hf_config: Any, device: torch.device, **options: Any
) -> tuple[PreTrainedModel, Differences]:
    """Load a model; return the model and the differences between it and its files.

    Args:
        auto_class: class of transformers that loads the model, such as `AutoModelForCausalLM`.
        source: the weights.
        hf_config: the model's config.
        device: target device.
        options: further arguments of `from_pretrained`.

    Raises:
        ModelError: the model cannot be loaded, or its weights contain NaN or infinity.
        ComponentError: the weight loader is faulty.
    """
    path = source.path
    try:
        # Without ignore_mismatched_sizes, transformers raises an error that names neither tensors nor shapes.
        check = partial(_refuse_empty_layers, path, hf_config)
        loaded = source.load(auto_class, hf_config, check, ignore_mismatched_sizes=True, **options)
        module = loaded.module
        differences = differences_of(loaded, quantization_of(hf_config) is not None)
        _check_values(path, module)
        module = module.to(device)
    except (ModelError, ComponentError):
        raise
    except Exception as error:
        raise ModelError(f"model {path!r} cannot be loaded: {_reason(source, hf_config, error)}") from error
    return module, differences


def _refuse_empty_layers(path: str, hf_config: Any, stored: Mapping[str, StoredTensor]) -> None:
    """Raise ModelError if the config has more layers than the files have tensors.

    Creating layers without tensors could take hours.
    """
    text_config = hf_config.get_text_config(decoder=True)
    num_layers = getattr(text_config, layer_count_name(text_config), 0)
    num_tensors = len(stored)
    if isinstance(num_layers, int) and num_layers > num_tensors > 0:
        raise ModelError(
            f"model {path!r} cannot be served: its config says {num_layers} layers, and its files have "
            f"{num_tensors} tensors"
        )


def _check_values(path: str, module: PreTrainedModel) -> None:
    """Raise ModelError if weights contain NaN or infinity. Log a warning if all values of a matrix are zero.

    A NaN would make outputs wrong without an error. Zeros are legal: pruned layers and untrained heads have
    them. Computing the minimum and maximum finds both in one pass at memory bandwidth (28 GB/s; isfinite
    reached only 1 GB/s).
    """
    damaged, zero = [], []
    for name, weight in module.named_parameters():
        if weight.dtype not in WIDE or weight.is_meta or not weight.numel():
            continue
        smallest, largest = map(float, torch.aminmax(weight.detach()))
        if not (math.isfinite(smallest) and math.isfinite(largest)):
            damaged.append(name)
        elif smallest == largest == 0 and weight.dim() > 1:
            zero.append(name)
    if damaged:
        raise ModelError(
            f"model {path!r} cannot be served: its weights hold NaN or infinity: {list_names(damaged)}"
        )
    if zero:
        logger.warning(
            "Every number of %s is 0, so these weights have no effect; compare the files with the original if that is not meant",
            list_names(zero),
        )


def _reason(source: WeightSource, hf_config: Any, error: Exception) -> str:
    """Return why loading failed. Inspects the files and the exception."""
    explain = partial(why_not, source.path, hf_config, error, reads_safetensors=source.reads_safetensors)
    try:
        stored = source.stored()
    except Exception:  # noqa: BLE001 - the files are damaged, and why_not names them
        return explain()
    if gaps := expert_gaps(stored):
        return f"experts are missing: {list_names(in_order(gaps))}"
    if quantization_of(hf_config) is not None and (lacking := missing_scales(stored)):
        return f"its quantized weights lack {list_names(in_order(lacking))}"
    if unequal := unequal_experts(stored):
        return f"experts differ in shape: {list_names(in_order(unequal))}"
    return explain()
