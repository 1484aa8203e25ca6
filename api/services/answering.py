"""The services that answer generation requests of one model."""

from __future__ import annotations

from llmfw.api.chat.service import ChatService
from llmfw.api.completions.service import CompletionService
from llmfw.api.embeddings.classification import ClassificationService
from llmfw.api.embeddings.embeddings import EmbeddingService
from llmfw.api.media.vision import Vision
from llmfw.api.text.engine_places import EnginePlaces
from llmfw.api.text.generation import Generator
from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.config import ServerConfig
from llmfw.core.client.client import EngineClient

from .fingerprint import CurrentFingerprint
from .model_components import ModelComponents


class Answering:
    """The services that answer generation requests of one model, all sharing one engine client.

    Args:
        client: a started client of the model's engine.
        config: settings of the server, with those of this model.
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
        fingerprint = CurrentFingerprint(
            client,
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
