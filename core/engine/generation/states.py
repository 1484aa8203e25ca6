"""Checks settings and allocates memory for models whose layers keep states between steps."""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.state_storage import StateStorage, state_bytes
from llmfw.core.model.device.devices import gigabytes
from llmfw.core.model.models import LoadedModel

from .capacity import Capacity

logger = logging.getLogger(__name__)


def check_states(config: EngineConfig, model: LoadedModel) -> None:
    """Check that the settings fit a model with states, or a model without states.

    Raises:
        ConfigError: the settings ask for drafts, or for snapshots that the model cannot have.
    """
    asked = config.max_state_snapshots
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


def state_storage(model: LoadedModel, capacity: Capacity, device: torch.device) -> StateStorage | None:
    """Allocate the states of all sequences that can run at once, and of snapshots; None if the model keeps none.

    Logs the sizes, and which features a model with states lacks.
    """
    if not model.states:
        return None
    storage = StateStorage(model.states, capacity.max_running + capacity.num_snapshots, device)
    logger.info(
        "%d layers of %s keep states, %s per sequence: %s.",
        *(len(model.states), model.architecture, gigabytes(state_bytes(model.states))),
        "no CUDA graphs" if capacity.num_snapshots else "no prefix cache and no CUDA graphs",
    )
    num_bytes = state_bytes(model.states)
    logger.info(
        "State storage is allocated. #sequences: %d, size: %s, #snapshots: %d, size: %s",
        *(capacity.max_running, gigabytes(capacity.max_running * num_bytes)),
        *(capacity.num_snapshots, gigabytes(capacity.num_snapshots * num_bytes)),
    )
    return storage
