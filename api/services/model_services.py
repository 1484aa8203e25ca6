"""A model of a server: its engine client, its components, and the services that answer requests for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from llmfw.api.access.keyring import Keyring
from llmfw.api.admin.adapters import AdapterService
from llmfw.api.admin.service import AdminService
from llmfw.api.admin.weights import WeightsService
from llmfw.api.anthropic.service import MessageService
from llmfw.api.batches.deferring import DeferringClient
from llmfw.api.files.service import FileService
from llmfw.api.native.service import NativeService
from llmfw.api.tokenize.tokenization import TokenizationService
from llmfw.core.base.config import ServerConfig
from llmfw.core.client.client import EngineClient

from .answering import Answering
from .description import ServerDescription
from .model_components import ModelComponents
from .vision import build_vision


@dataclass(frozen=True, slots=True)
class StartedModel:
    """A model whose engine has started.

    Attributes:
        client: client of the engine.
        components: components that depend on the model.
        config: settings of the server, with those of this model, such as its name.
    """

    client: EngineClient
    components: ModelComponents
    config: ServerConfig


class ModelServices:
    """The services of one model.

    Args:
        model: the model.
        files: files that clients have uploaded.
        keys: API keys that each have cached prefixes of their own; None: all clients share theirs.

    Attributes:
        client: client of the engine.
        components: components that depend on the model.
        vision: reads the images of requests; None: the model reads text only.
        live: services that answer live requests.
        deferred: services of batches, whose requests are deferrable.
        names: names of the model and its adapters.
    """

    def __init__(self, model: StartedModel, files: FileService, keys: Keyring | None) -> None:
        self.client, self.components = model.client, model.components
        self.vision = build_vision(model.components.image_prompts, model.config, files)
        self._seeing: asyncio.Task[None] | None = None
        self.live = Answering(model.client, model.components, model.config, vision=self.vision)
        generator, chat = self.live.generator, self.live.chat
        self.names = generator.names
        vision = None if self.vision is None else self.vision.for_batches()
        deferring = DeferringClient(model.client)
        self.deferred = Answering(deferring, model.components, model.config, self.names, vision)
        self.messages = MessageService(chat, generator)
        self.native = NativeService(generator, model.components.reasoning_parser)
        self.tokenization = TokenizationService(generator, chat)
        self.admin = AdminService(model.client, generator, chat, keys)
        self.weights = WeightsService(model.client, model.config.weights_from)
        self.description = ServerDescription(model.client, generator, self.admin)
        self.adapters = AdapterService(model.client, self.names)

    def start(self) -> None:
        """Start to import the code that reads images."""
        if self.vision is not None:
            self._seeing = asyncio.create_task(self.vision.start())

    async def close(self) -> None:
        """Stop background work."""
        await self.live.generator.close()
        if self._seeing is not None:
            self._seeing.cancel()
        if self.vision is not None:
            await self.vision.close()
