"""The inputs from which an engine that generates is built."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.parallel.rank_group import RankGroup
from llmfw.core.plugin.registry import Registry

from .capacity import Capacity


@dataclass(frozen=True, slots=True)
class Foundation:
    """A loaded model on its device, with the settings and the components to build an engine for it.

    Attributes:
        config: settings of the engine.
        registry: registry of the components that the settings name.
        device: device on which steps run.
        model: the loaded model.
        capacity: capacity that the device has in addition to the model.
        group: ranks among which the model is divided; None: it is not divided.
    """

    config: EngineConfig
    registry: Registry
    device: torch.device
    model: LoadedModel
    capacity: Capacity
    group: RankGroup | None = None
