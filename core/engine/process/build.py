"""Builds the engine that a model needs: one that generates, or one that embeds or classifies."""

from __future__ import annotations

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.device.devices import use_threads
from llmfw.core.plugin.registry import Registry

from ..generation.memory_together import check_together
from ..ranks.rank_processes import RankProcesses
from .any_engine import AnyEngine
from .task import choose_task


def build_engine(config: EngineConfig, registry: Registry, ranks: RankProcesses | None = None) -> AnyEngine:
    """Load the model and build the components that the config names.

    Args:
        ranks: processes of the other ranks, if they are started already.

    Raises:
        ConfigError: the model or a component cannot be found, loaded or used; the message gives the reason.
    """
    use_threads(config)
    task = choose_task(config)
    check_together(config)
    if task != "generate":
        from ..embedding.embedding_engine import EmbeddingEngine

        return EmbeddingEngine.build(config, registry, classifies=task == "classify")
    from ..generation.build import build_generation_engine

    return build_generation_engine(config, registry, ranks=ranks)
