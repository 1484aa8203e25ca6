"""What answers requests, put together once: for the HTTP application, or for a batch that runs without one.

Knows neither routes nor processes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from llmfw.core.batch_store import BatchStore
from llmfw.core.chat_template import ChatTemplate
from llmfw.core.client.client import EngineClient
from llmfw.core.config import ServerConfig
from llmfw.core.file_store import FileStore
from llmfw.core.parsers import ReasoningParser, ToolParser
from llmfw.core.response_store import ResponseStore
from llmfw.core.tokenizer import Tokenizer

from .admin.service import AdminService
from .anthropic.service import MessageService
from .batches.deferring import DeferringClient
from .batches.service import open_batches
from .chat.service import ChatService
from .completions.service import CompletionService
from .embeddings import EmbeddingService
from .files.expiry import FileExpiry
from .files.service import FileService
from .files.uploads import UploadService
from .fingerprint import system_fingerprint
from .generation import Generator
from .grammar_check import GrammarChecker
from .native.service import NativeService
from .responses.memory import ResponseMemory
from .responses.service import ResponseService
from .tokenization import TokenizationService

SECONDS_A_DAY = 24 * 3600


class ModelParts(msgspec.Struct, frozen=True, kw_only=True):
    """What fits the model, beside its engine.

    Attributes:
        chat_template: messages → prompt.
        reasoning_parser, tool_parser: classes, or None.
        json_tool_parser: reads tool calls that are a bare JSON array, where a grammar holds the model to them.
        grammar_checker: for structured output; None: there is none.
        sampling_defaults: the model's own, by SamplingParams' names.
    """

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    reasoning_parser: type[ReasoningParser] | None = None
    tool_parser: type[ToolParser] | None = None
    json_tool_parser: type[ToolParser] | None = None
    grammar_checker: GrammarChecker | None = None
    sampling_defaults: Mapping[str, float] = {}


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Where what is to be kept is kept."""

    files: FileStore
    batches: BatchStore
    responses: ResponseStore

    async def close(self) -> None:
        """Close all of them."""
        await self.responses.close()
        await self.batches.close()
        await self.files.close()


class Answering:
    """The services that make something of a body, all over one engine client.

    Attributes:
        generator: runs prompts for all of them.
    """

    def __init__(
        self, client: EngineClient, parts: ModelParts, config: ServerConfig, memory: ResponseMemory
    ) -> None:
        self.generator = Generator(
            client, parts.tokenizer, config.served_model_name, parts.grammar_checker, parts.sampling_defaults
        )
        parsers = (parts.reasoning_parser, parts.tool_parser)
        fingerprint = system_fingerprint(
            client.info,
            (parts.chat_template.source, *parsers),
            config.options,
            parts.sampling_defaults,
        )
        self.chat = ChatService(
            self.generator,
            parts.chat_template,
            reasoning_parser=parts.reasoning_parser,
            tool_parser=parts.tool_parser,
            json_tool_parser=parts.json_tool_parser,
            fingerprint=fingerprint,
            reasoning_field=config.reasoning_field,
        )
        self.completions = CompletionService(self.generator, fingerprint)
        self.embeddings = EmbeddingService(self.generator)
        self.responses = ResponseService(self.chat, memory, config.served_model_name)


class Services:
    """All services of a server.

    Args:
        client: started.
        stores: are closed with the services.

    Attributes:
        live: what answers clients that wait.
    """

    def __init__(self, client: EngineClient, parts: ModelParts, stores: Stores, config: ServerConfig) -> None:
        self._memory = ResponseMemory(stores.responses, config.response_ttl_days * SECONDS_A_DAY)
        self._stores = stores
        self.live = Answering(client, parts, config, self._memory)
        self.messages = MessageService(self.live.chat, self.live.generator)
        self.native = NativeService(self.live.generator)
        self.tokenization = TokenizationService(self.live.generator, self.live.chat)
        self.admin = AdminService(client, self.live.generator, self.live.chat)
        self.files = FileService(stores.files, stores.batches)
        self.uploads = UploadService(stores.files)
        self._file_expiry = FileExpiry(self.files)
        deferred = Answering(DeferringClient(client), parts, config, self._memory)
        self.batches = open_batches(
            client,
            deferred,
            stores.files,
            stores.batches,
            strict=config.strict_params,
            deleting=self.files.deleting,
        )

    async def start(self) -> None:
        """Settle what an earlier server left."""
        await self._memory.start()
        self._file_expiry.start()
        await self.batches.start()

    async def close(self) -> None:
        """Stop what runs by itself, and close the stores."""
        await self.batches.close()
        await self.live.responses.close()
        await self._memory.close()
        await self._file_expiry.close()
        await self._stores.close()
