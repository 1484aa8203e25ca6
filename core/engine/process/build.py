"""Builds the engine that a model needs: one that generates, or one that embeds or classifies."""

from __future__ import annotations

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.device.devices import limit_threads
from llmfw.core.plugin.registry import Registry

from ..generation.memory_together import check_together
from .any_engine import AnyEngine
from .task import choose_task


def build_engine(config: EngineConfig, registry: Registry) -> AnyEngine:
    """Load the model and build the components that the config names.

    Raises:
        ConfigError: the model or a component cannot be found, loaded or used; the message gives the reason.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    else:
        limit_threads(place=config.place)
    task = choose_task(config)
    check_together(config)
    if task != "generate":
        from ..embedding.embedding_engine import EmbeddingEngine

        return EmbeddingEngine.build(config, registry, classifies=task == "classify")
    from ..generation.build import build_generation_engine

    return build_generation_engine(config, registry)
