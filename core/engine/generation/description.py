"""What an engine says of itself, once it is built."""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import EngineInfo
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype, dtype_name
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.weight_version import weight_version

from .capacity import Capacity

logger = logging.getLogger(__name__)


def describe(
    config: EngineConfig, model: LoadedModel, capacity: Capacity, device: torch.device, attention: str
) -> EngineInfo:
    """Return what an engine of this model is, and log how much fits.

    Args:
        attention: the backend's name.
    """
    info = EngineInfo(
        model=config.model,
        architecture=model.architecture,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(device),
        vocab_size=model.vocab_size,
        max_model_len=capacity.max_model_len,
        max_total_tokens=capacity.num_pages * config.page_size,
        max_running_requests=capacity.max_running,
        attention=attention,
        policy=config.policy,
        weight_version=weight_version(config.model, config.load_format),
        module_passes=model.module_passes,
        quantization=config.quantization,
        kv_cache_dtype=dtype_name(choose_kv_dtype(config.kv_cache_dtype, model.dtype)),
    )
    logger.info(
        "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%d, "
        "context_len=%d",
        *(
            info.max_total_tokens,
            capacity.prefill_budget if capacity.chunked else -1,
            config.max_prefill_tokens,
        ),
        *(info.max_running_requests, info.max_model_len),
    )
    return info
