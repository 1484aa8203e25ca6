"""How much an engine can hold: settings that are left open, decided by device and model.

What is decided here is logged and told to clients in `EngineInfo`; it is never written back into the config.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from ..config import EngineConfig
from ..errors import ConfigError
from .devices import available_memory, gigabytes, total_memory
from .kv_storage import bytes_per_token
from .models import LoadedModel

logger = logging.getLogger(__name__)

DEFAULT_MEM_FRACTION = {"cuda": 0.88, "cpu": 0.3}
DEFAULT_MAX_RUNNING = {"cuda": 512, "cpu": 128}
DEFAULT_CHUNK = {"cuda": 8192, "cpu": 512}


@dataclass(frozen=True, slots=True)
class Capacity:
    """What fits.

    Attributes:
        num_pages: pages of key and value storage.
        max_model_len: longest sequence: the model's context, or the whole pool if that is smaller.
        max_running: most sequences in one step.
        prefill_budget: most prompt tokens in one step.
        chunked: whether a prompt may be cut to fit the budget.
    """

    num_pages: int
    max_model_len: int
    max_running: int
    prefill_budget: int
    chunked: bool


def decide_capacity(config: EngineConfig, model: LoadedModel, device: torch.device) -> Capacity:
    """Return what fits on the device beside the loaded model.

    Raises:
        ConfigError: a setting is out of range, or nothing fits.
    """
    max_running = _positive(
        "--max-running-requests", config.max_running_requests, DEFAULT_MAX_RUNNING[device.type]
    )
    page_size = _positive("--page-size", config.page_size, 1)
    num_tokens = config.max_total_tokens
    if num_tokens is None:
        num_tokens = min(_tokens_that_fit(config, model, device), max_running * model.context_length)
    num_pages = num_tokens // page_size
    if num_pages * page_size < 2:
        raise ConfigError(
            f"--max-total-tokens is {num_tokens}; at least one page of {page_size}, and 2 tokens, are needed"
        )
    max_model_len = min(model.context_length, num_pages * page_size)
    if max_model_len < model.context_length:
        logger.warning(
            "The pool holds %d tokens, less than the context of %d: longer requests are refused.",
            *(max_model_len, model.context_length),
        )
    chunk = config.chunked_prefill_size
    chunked = chunk is None or chunk > 0
    budget = config.max_prefill_tokens if not chunked else chunk or DEFAULT_CHUNK[device.type]
    return Capacity(
        num_pages=num_pages,
        max_model_len=max_model_len,
        max_running=max_running,
        prefill_budget=_positive("--max-prefill-tokens", budget, 1),
        chunked=chunked,
    )


def _tokens_that_fit(config: EngineConfig, model: LoadedModel, device: torch.device) -> int:
    fraction = config.mem_fraction_static
    if fraction is None:
        fraction = DEFAULT_MEM_FRACTION[device.type]
    if not 0 < fraction <= 1:
        raise ConfigError(f"--mem-fraction-static is {fraction}; it must be above 0 and at most 1")
    room = min(fraction * total_memory(device) - model.num_bytes, available_memory(device))
    per_token = bytes_per_token(model.layers, model.dtype)
    if room < per_token * config.page_size:
        raise ConfigError(
            f"weights of {gigabytes(model.num_bytes)} leave no room for keys and values within {fraction:.0%} of "
            f"{gigabytes(total_memory(device))}; raise --mem-fraction-static"
        )
    return int(room // per_token)


def _positive(flag: str, asked: int | None, default: int) -> int:
    number = default if asked is None else asked
    if number < 1:
        raise ConfigError(f"{flag} is {number}; it must be at least 1")
    return number
