"""The models of a server, each with its settings and with a client that starts its engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import EngineLostError
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.client.launched import LaunchedEngineClient
from llmfw.core.client.replicas.start import config_of

logger = logging.getLogger(__name__)

WEIGHT_FILES = ("*.safetensors", "*.gguf", "pytorch_model*.bin")
"""Patterns of the names of weight files, in the order of preference."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of a server for one of its models.

    Attributes:
        engine: settings of the model's engine.
        server: settings of the server, with those of the model, such as its name and its chat template.
    """

    engine: EngineConfig
    server: ServerConfig


@dataclass(frozen=True, slots=True)
class LaunchedModel:
    """A model and the client that starts its engine."""

    settings: ModelSettings
    client: LaunchedEngineClient

    @property
    def name(self) -> str:
        """Served name of the model."""
        return self.settings.server.served_model_name


class LaunchedModels:
    """All models of a server. If the engine of one fails for good, the others go on.

    Args:
        models: the models, at least one.
    """

    def __init__(self, models: Sequence[LaunchedModel]) -> None:
        self._models = models

    def __iter__(self) -> Iterator[LaunchedModel]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    @property
    def first(self) -> LaunchedModel:
        """The first model."""
        return self._models[0]

    @contextlib.contextmanager
    def launched(self) -> Iterator[None]:
        """Start the engines' first processes, and end them at the end of the block (see `LaunchedEngineClient`)."""
        with contextlib.ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.client.launched())
            yield

    async def wait_lost(self) -> EngineLostError:
        """Wait until the engines of all models are lost; return the reason of the first model."""
        return (await asyncio.gather(*map(self._lost, self._models)))[0]

    async def _lost(self, model: LaunchedModel) -> EngineLostError:
        error = await model.client.wait_lost()
        if len(self._models) > 1:
            logger.error("Model %r is not served any more: %s", model.name, error)
        return error

    def stop_restarting(self) -> None:
        """Turn restarts of engines off, because the server is ending."""
        for model in self._models:
            model.client.stop_restarting()

    def show_stacks(self) -> None:
        """Make the engine processes log the stacks of their threads."""
        for model in self._models:
            model.client.show_stacks()

    async def close(self) -> None:
        """End all engines, and the requests that they run."""
        await asyncio.gather(*(model.client.close() for model in self._models))


def launched_models(
    settings: Sequence[ModelSettings],
    new_client: Callable[[EngineConfig, ServerConfig], LaunchedEngineClient],
) -> LaunchedModels:
    """Return the models of a server. Several models share the cores and the memory of the machine.

    Args:
        new_client: creates the client of a model's engine from its settings.
    """
    if len(settings) > 1:
        weights = tuple(_stored_bytes(each.engine.model) for each in settings)
        settings = [_placed(each, index, weights) for index, each in enumerate(settings)]
    return LaunchedModels([LaunchedModel(each, new_client(each.engine, each.server)) for each in settings])


def _placed(settings: ModelSettings, index: int, weights: tuple[int, ...]) -> ModelSettings:
    place = ReplicaPlace(index, len(weights), settings.server.served_model_name, weights)
    return ModelSettings(config_of(settings.engine, place), settings.server)


def _stored_bytes(model: str) -> int:
    """Return the size of a model's weight files in bytes; 0 if it is not a folder on this machine."""
    for pattern in WEIGHT_FILES:
        if found := sum(file.stat().st_size for file in Path(model).glob(pattern) if file.is_file()):
            return found
    return 0
