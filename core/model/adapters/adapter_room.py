"""Decides how much room for adapters a model gets, from the settings and the adapters to load at startup."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from llmfw.core.base.adapter_name import split_adapters
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError

from ..device.devices import gigabytes
from .adapter_config import read_adapter_config
from .adapter_slots import AdapterSlots, add_slots

logger = logging.getLogger(__name__)

LEAST_RANK = 16
"""Highest rank of adapters, unless the settings give a rank or name an adapter of a higher rank."""


@dataclass(frozen=True, slots=True)
class AdapterRoom:
    """Room for adapters.

    Attributes:
        num_slots: number of adapters that fit into memory at once, at least 1.
        max_rank: highest rank of an adapter.
    """

    num_slots: int
    max_rank: int

    @classmethod
    def of(cls, config: EngineConfig) -> AdapterRoom | None:
        """Return the room that the settings ask for; None if they ask for none. Reads the adapters' configs.

        Raises:
            ConfigError: the settings contradict each other.
            ModelError: an adapter's config cannot be read, or the adapter cannot be served.
        """
        named = split_adapters(config.adapters)
        num_slots = len(named) if config.max_adapters is None else config.max_adapters
        num_loaded = config.max_loaded_adapters or num_slots
        if num_loaded < len(named):
            setting = "--max-loaded-adapters" if config.max_loaded_adapters else "--max-adapters"
            raise ConfigError(
                f"{setting} is {num_loaded}, and --adapter names {len(named)}; raise it, or leave it out"
            )
        if config.max_loaded_adapters is not None:
            _check_loaded(config.max_loaded_adapters, num_slots, config)
        if not num_slots:
            if config.max_adapter_rank is not None:
                raise ConfigError(
                    f"--max-adapter-rank is {config.max_adapter_rank}, and there is no room for adapters; give "
                    "--max-adapters, too, or leave it out"
                )
            return None
        configs = [read_adapter_config(Path(path)) for _, path in named]
        highest = max((rank for each in configs for rank in (each.rank, *each.ranks.values())), default=0)
        return cls(num_slots, config.max_adapter_rank or max(LEAST_RANK, highest))

    def add_to(self, model: nn.Module, vocab_size: int, dtype: torch.dtype) -> AdapterSlots:
        """Make the room in a model that no module pass has changed, and log its size.

        Raises:
            ModelError: no layer of the model can be adapted.
        """
        slots = add_slots(model, self.num_slots, self.max_rank, vocab_size, dtype)
        logger.info(
            "Adapters: %d slots of rank %d take %s. Steps with adapters run without CUDA graphs.",
            *(self.num_slots, self.max_rank, gigabytes(slots.num_bytes)),
        )
        return slots


def _check_loaded(num_loaded: int, num_slots: int, config: EngineConfig) -> None:
    """Raise ConfigError if fewer adapters may be loaded than there are slots, or if changes of slots spoil a record."""
    if num_loaded < num_slots or not num_slots:
        raise ConfigError(
            f"--max-loaded-adapters is {num_loaded}, and there are {num_slots} slots (--max-adapters); give at least as many, "
            "and at least one slot"
        )
    if config.record_steps is not None and num_loaded > num_slots:
        raise ConfigError(
            "--record-steps does not record which adapter is in which slot; leave out --max-loaded-adapters"
        )
