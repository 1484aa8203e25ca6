"""Builds the services that answer requests, for the HTTP application or for a batch run without one.

Does not depend on routes or on how the engine process is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from llmfw.api.access.keyring import Keyring
from llmfw.api.access.ownership import Ownership, warn_of_unowned
from llmfw.api.adapters.isolated_source import IsolatedSource
from llmfw.api.adapters.search import AdapterSearch
from llmfw.api.admin.adapters import AdapterService
from llmfw.api.admin.replicas import ReplicaService
from llmfw.api.admin.service import AdminService
from llmfw.api.anthropic.service import MessageService
from llmfw.api.batches.deferring import DeferringClient
from llmfw.api.batches.job_context import Pace, no_pace
from llmfw.api.batches.service import open_batches
from llmfw.api.chat.service import ChatService
from llmfw.api.completions.service import CompletionService
from llmfw.api.embeddings.classification import ClassificationService
from llmfw.api.embeddings.embeddings import EmbeddingService
from llmfw.api.files.disk_space import DiskSpace
from llmfw.api.files.expiry import FileExpiry
from llmfw.api.files.service import FileService
from llmfw.api.files.uploads import UploadService
from llmfw.api.media.vision import ImagePrompts, Vision
from llmfw.api.native.service import NativeService
from llmfw.api.responses.memory import ResponseMemory
from llmfw.api.responses.service import ResponseService
from llmfw.api.server.limits import body_limits
from llmfw.api.text.engine_places import EnginePlaces
from llmfw.api.text.generation import Generator
from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.api.text.model_names import ModelNames
from llmfw.api.text.request_fields import NO_FIELDS, RequestFields
from llmfw.api.tokenize.tokenization import TokenizationService
from llmfw.core.base.config import ServerConfig
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.parsers import ReasoningParser, ToolParser
from llmfw.core.interfaces.tokenizer import Tokenizer

from .description import ServerDescription
from .fingerprint import system_fingerprint
from .stores import Stores
from .vision import build_vision

SECONDS_A_DAY = 24 * 3600


class ModelComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The components of the API process that depend on the model.

    Attributes:
        tokenizer: the model's tokenizer.
        chat_template: template that renders messages as a prompt.
        reasoning_parser, tool_parser: parser classes, or None.
        json_tool_parser: parser of tool calls in the format of a bare JSON array. Every model can be made to
            use this format by a grammar.
        grammar_checker: checker for structured output; None: no structured output.
        sampling_defaults: SamplingParams field → the model's default for it.
        request_fields: active request fields of plugins.
        image_prompts: the model's image processor; None: the model reads text only.
    """

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    reasoning_parser: type[ReasoningParser] | None = None
    tool_parser: type[ToolParser] | None = None
    json_tool_parser: type[ToolParser] | None = None
    grammar_checker: GrammarChecker | None = None
    sampling_defaults: Mapping[str, float] = {}
    request_fields: RequestFields = NO_FIELDS
    image_prompts: ImagePrompts | None = None


class Answering:
    """The services that answer generation requests, all sharing one engine client.

    Args:
        names: names of the model and its adapters, which other services may share; None: the current names.
        vision: reads images, which other services may share; None: the model reads text only.

    Attributes:
        generator: generator that runs the prompts of all these services.
    """

    def __init__(
        self,
        client: EngineClient,
        components: ModelComponents,
        config: ServerConfig,
        memory: ResponseMemory,
        names: ModelNames | None = None,
        vision: Vision | None = None,
    ) -> None:
        self.generator = Generator(
            client,
            components.tokenizer,
            config.served_model_name,
            components.grammar_checker,
            components.sampling_defaults,
            places=EnginePlaces(client.info.max_running_requests),
            max_biases=config.max_logit_bias,
            fields=components.request_fields,
            names=names,
        )
        parsers = (components.reasoning_parser, components.tool_parser)
        fingerprint = system_fingerprint(
            client.info,
            (components.chat_template.source, *parsers),
            config.options,
            components.sampling_defaults,
        )
        self.chat = ChatService(
            self.generator,
            components.chat_template,
            reasoning_parser=components.reasoning_parser,
            tool_parser=components.tool_parser,
            json_tool_parser=components.json_tool_parser,
            fingerprint=fingerprint,
            reasoning_field=config.reasoning_field,
            max_messages=config.max_messages,
            vision=vision,
        )
        self.completions = CompletionService(self.generator, fingerprint)
        self.embeddings = EmbeddingService(self.generator, self.chat)
        self.classification = ClassificationService(self.generator)
        self.responses = ResponseService(self.chat, memory, client.info.max_running_requests)


class Services:
    """All services of a server.

    Args:
        client: a started engine client.
        components: the model's components.
        stores: opened stores; `close` closes them.
        keys: API keys of the clients; None: no keys.
        pace: as in `open_batches`.
        source: finds adapters that requests name and that are not loaded; None: such requests are refused.

    Attributes:
        live: services that answer live requests. Batches have separate services, whose requests are
            deferrable.
        vision: reads the images of requests to all services; None: the model reads text only.
    """

    def __init__(
        self,
        client: EngineClient,
        components: ModelComponents,
        stores: Stores,
        config: ServerConfig,
        keys: Keyring | None = None,
        pace: Pace = no_pace,
        source: IsolatedSource | None = None,
    ) -> None:
        self._ownership = Ownership(keys, config.adopt_unowned)
        self._keys = keys
        self._memory = ResponseMemory(
            stores.responses,
            stores.response_store,
            config.response_ttl_days * SECONDS_A_DAY,
            self._ownership,
        )
        self._stores = stores
        space = DiskSpace(config.storage, config.min_free_disk_mb)
        self.files = FileService(stores.files, stores.batches, self._ownership, space)
        self.vision = build_vision(components.image_prompts, config, self.files)
        self._seeing: asyncio.Task[None] | None = None
        self.live = Answering(client, components, config, self._memory, vision=self.vision)
        self.messages = MessageService(self.live.chat, self.live.generator)
        self.native = NativeService(self.live.generator, components.reasoning_parser)
        self.tokenization = TokenizationService(self.live.generator, self.live.chat)
        scope = keys if config.prefix_cache_scope == "key" else None
        self.admin = AdminService(client, self.live.generator, self.live.chat, scope)
        self.description = ServerDescription(client, self.live.generator, self.admin)
        self.uploads = UploadService(stores.files, self._ownership, space)
        self._file_expiry = FileExpiry(self.files)
        names = self.live.generator.names
        self.adapters = AdapterService(client, names)
        self._source = source
        self._search = None if source is None else AdapterSearch(source, self.adapters, names)
        names.search = None if self._search is None else self._search.find
        self.replicas = ReplicaService(client)
        deferred = Answering(DeferringClient(client), components, config, self._memory, names, self.vision)
        self.batches = open_batches(
            client,
            deferred,
            stores.files,
            stores.batches,
            strict=config.strict_params,
            limits=body_limits(config),
            deleting=self.files.deleting,
            ownership=self._ownership,
            folder=stores.folder,
            pace=pace,
        )

    async def start(self) -> None:
        """Start background work, and recover or fail the work that an earlier server left unfinished."""
        if self._keys is not None:
            self._keys.start()
        if self._ownership.leaves_unowned():
            await warn_of_unowned(self._stores.files, self._stores.batches)
        await self._memory.start()
        if self.vision is not None:
            self._seeing = asyncio.create_task(self.vision.start())
        self._file_expiry.start()
        await self.batches.start()

    async def hand_back(self) -> None:
        """Release the batches, so that another server with the same stores can continue them."""
        await self.batches.close()

    async def finished(self) -> None:
        """Wait until no background response runs or is queued."""
        await self.live.responses.finished()

    async def end(self) -> None:
        """End the background responses, and store them as failed."""
        await self.live.responses.close()

    async def close(self) -> None:
        """Stop background work, and close the stores."""
        await self.batches.close()
        await self.live.responses.close()
        await self.live.generator.close()
        if self._search is not None and self._source is not None:
            await self._search.close()
            self._source.close()
        if self._seeing is not None:
            self._seeing.cancel()
        if self.vision is not None:
            await self.vision.close()
        await self._memory.close()
        await self._file_expiry.close()
        if self._keys is not None:
            await self._keys.close()
        await self._stores.close()
