"""Checks settings and allocates memory for models whose layers keep states between steps."""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.packed_states import LEAST_WIDTH, is_packed
from llmfw.core.interfaces.state_storage import StateStorage, state_bytes
from llmfw.core.model.device.devices import gigabytes
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.probe.state_rounding import rounding_error

from .capacity import Capacity

logger = logging.getLogger(__name__)


def check_states(config: EngineConfig, model: LoadedModel) -> None:
    """Check that the settings fit a model with states, or a model without states.

    Raises:
        ConfigError: the settings ask for drafts, or for snapshots that the model cannot have.
    """
    asked, packs = config.max_state_snapshots, config.state_snapshot_dtype == "int8"
    if packs and not any(is_packed(spec) for layer in model.states for spec in layer.states):
        raise ConfigError(
            f"--state-snapshot-dtype is int8; {model.architecture} keeps no states whose rows have {LEAST_WIDTH} numbers "
            "or more; leave the option out"
        )
    if asked is not None and not model.states:
        raise ConfigError(
            f"--max-state-snapshots is {asked}; {model.architecture} keeps no states; leave the option out"
        )
    if asked and config.disable_radix_cache:
        raise ConfigError(
            f"--max-state-snapshots is {asked}; with --disable-radix-cache no prefix is reused; leave one of them out"
        )
    if model.states and config.drafter != "none":
        raise ConfigError(
            f"--drafter is {config.drafter}; {model.architecture} keeps a state that cannot go back when a draft is "
            "rejected; leave the option out"
        )


def state_storage(
    config: EngineConfig, model: LoadedModel, capacity: Capacity, device: torch.device
) -> StateStorage | None:
    """Allocate the states of all sequences that can run at once, and of snapshots; None if the model keeps none.

    Logs the sizes, and which features a model with states lacks.
    """
    if not model.states:
        return None
    packs = config.state_snapshot_dtype == "int8"
    num_slots, num_packed = capacity.max_running + capacity.num_snapshots, packs * capacity.num_snapshots
    storage = StateStorage(model.states, num_slots, device, num_packed)
    logger.info(
        "%d layers of %s keep states, %s per sequence: %s.",
        *(len(model.states), model.architecture, gigabytes(state_bytes(model.states))),
        "no CUDA graphs" if capacity.num_snapshots else "no prefix cache and no CUDA graphs",
    )
    num_bytes = state_bytes(model.states)
    logger.info(
        "State storage is allocated. #sequences: %d, size: %s, #snapshots: %d, size: %s",
        *(capacity.max_running, gigabytes(capacity.max_running * num_bytes)),
        *(capacity.num_snapshots, gigabytes(storage.num_bytes - capacity.max_running * num_bytes)),
    )
    if num_packed:
        logger.info(
            "Snapshots of states are rounded to 8 bits, which changes a state by %.2g of its size.",
            rounding_error(model.module, model.vocab_size),
        )
    return storage
