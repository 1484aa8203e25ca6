"""Serving of models whose layers keep states between steps: what they cannot have, and their memory."""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.state_storage import StateStorage, state_bytes
from llmfw.core.model.devices import gigabytes
from llmfw.core.model.models import LoadedModel

from .capacity import Capacity

logger = logging.getLogger(__name__)


def check_states(config: EngineConfig, model: LoadedModel) -> None:
    """Check that the settings fit a model that keeps states, and log what such a model does without.

    Raises:
        ConfigError: the settings ask for drafts.
    """
    if not model.states:
        return
    if config.drafter != "none":
        raise ConfigError(
            f"--drafter is {config.drafter}; {model.architecture} keeps a state that cannot go back when a draft is "
            "rejected; leave the option out"
        )
    logger.info(
        "%d layers of %s keep states, %s per sequence: no prefix cache and no CUDA graphs.",
        *(len(model.states), model.architecture, gigabytes(state_bytes(model.states))),
    )


def state_storage(model: LoadedModel, capacity: Capacity, device: torch.device) -> StateStorage | None:
    """Allocate the states of all sequences that can run at once; None if the model keeps none."""
    if not model.states:
        return None
    storage = StateStorage(model.states, capacity.max_running, device)
    logger.info(
        "State storage is allocated. #sequences: %d, size: %s",
        *(capacity.max_running, gigabytes(storage.num_bytes)),
    )
    return storage
