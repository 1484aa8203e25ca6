"""Implements `RouteServices` with the services of the server's own routes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from llmfw.api.files.service import FileService
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.embeddings import EmbeddingRequest
from llmfw.api.schemas.tokenize import DetokenizeRequest
from llmfw.api.services.model_services import ModelServices
from llmfw.api.text.by_model import ByModel
from llmfw.api.text.generation import Generation
from llmfw.api.text.generation_prompt import Output
from llmfw.api.text.sampling import check_sizes
from llmfw.api.text.terms import Terms, key_name, key_scopes
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec, SamplingParams
from llmfw.core.interfaces.chat_template import Message
from llmfw.core.interfaces.parsers import ContentDelta
from llmfw.core.interfaces.route_services import (
    Caller,
    CallerFiles,
    Classifications,
    Embeddings,
    GeneratedText,
    Prompt,
    RouteServices,
    Scores,
    TextPiece,
)

from .argument_types import check_prompt, check_prompts, check_settings, check_texts, check_texts_or_pairs
from .files import OwnFiles
from .scoring import Scorer

MAX_TOP = 20
"""Maximum number of most likely tokens to report, as in the OpenAI API."""


class CallerServices(RouteServices):
    """Acts for the caller whose key the current context has.

    Args:
        models: services of the models.
        files: service of /v1/files.
        is_admin: returns whether the caller of the current request is an administrator.
        model: the model to act with; None: the first.
    """

    def __init__(
        self,
        models: ByModel[ModelServices],
        files: FileService,
        is_admin: Callable[[], bool],
        model: str | None = None,
    ) -> None:
        self._models = models
        self._all_files = files
        found = models.of(model)
        self._answering = found.live
        self._generator = found.live.generator
        self._tokenization = found.tokenization
        self._files = OwnFiles(files)
        self._is_admin = is_admin
        self._scorer = Scorer(self._generator)

    def for_model(self, model: str | None) -> CallerServices:
        """Return the services of the model that a request names."""
        return CallerServices(self._models, self._all_files, self._is_admin, model)

    @property
    def caller(self) -> Caller:
        """The caller of the request that is being handled."""
        tenant = key_name.get()
        return Caller(tenant=tenant, is_key=bool(tenant), is_admin=self._is_admin(), scopes=key_scopes.get())

    @property
    def files(self) -> CallerFiles:
        """The caller's files."""
        return self._files

    @property
    def task(self) -> str:
        """The model's task."""
        return self._generator.info.task

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template."""
        return self._answering.chat.has_template

    def check_model(self, model: str | None) -> None:
        """Check the model that a request names."""
        self._generator.check(model, None)

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        logprobs: int | None = None,
        grammar: GrammarSpec | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> GeneratedText:
        """Generate a text and return it as a whole."""
        check_prompt("prompt", prompt)
        check_settings(sampling, logprobs, grammar, priority, timeout_s)
        if logprobs is not None and not 0 <= logprobs <= MAX_TOP:
            raise RequestError(f"logprobs is {logprobs}; it must be 0 to {MAX_TOP}", param="logprobs")
        terms = terms_for_caller(timeout_s)
        generation = await self._start(prompt, sampling, logprobs, grammar, priority, terms)
        deltas = await generation.finish()
        choice = generation.choices[0]
        return GeneratedText(
            text=_text_of(deltas[0]),
            token_ids=tuple(choice.text.token_ids),
            finish_reason=str(choice.text.finish_reason),
            prompt_tokens=len(choice.request.prompt),
            cached_tokens=choice.text.num_cached_tokens,
            logprobs=tuple(choice.text.logprobs),
        )

    async def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        grammar: GrammarSpec | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[TextPiece, None]:
        """Generate a text and yield it as it comes."""
        check_prompt("prompt", prompt)
        check_settings(sampling, None, grammar, priority, timeout_s)
        terms = terms_for_caller(timeout_s)
        generation = await self._start(prompt, sampling, None, grammar, priority, terms)
        sent = 0
        async with contextlib.aclosing(generation.events()) as events:
            async for choice, deltas in events:
                new, sent = choice.text.token_ids[sent:], len(choice.text.token_ids)
                reason = choice.text.finish_reason
                if new or deltas or reason is not None:
                    yield TextPiece(text=_text_of(deltas), token_ids=tuple(new), finish_reason=reason)

    async def embed(self, texts: Sequence[str], *, timeout_s: float | None = None) -> Embeddings:
        """Return the vector of each text."""
        check_texts("texts", texts)
        check_settings(timeout_s=timeout_s)
        reply = await self._answering.embeddings.reply(
            EmbeddingRequest(input=list(texts), encoding_format="float", timeout=timeout_s)
        )
        vectors: list[Any] = [each.embedding for each in reply.data]
        return Embeddings(vectors=vectors, prompt_tokens=reply.usage.prompt_tokens)

    async def score(
        self, prompt: Prompt, continuations: Sequence[Prompt], *, timeout_s: float | None = None
    ) -> Scores:
        """Return how likely each continuation is after the prompt."""
        check_prompt("prompt", prompt)
        check_prompts("continuations", continuations)
        check_settings(timeout_s=timeout_s)
        self._generator.check(None)
        start = await self._token_ids(prompt)
        added = [await self._token_ids(each, add_special_tokens=False) for each in continuations]
        return await self._scorer.score(start, added, terms_for_caller(timeout_s))

    async def classify(
        self, inputs: Sequence[str | tuple[str, str]], *, timeout_s: float | None = None
    ) -> Classifications:
        """Return the scores of each text or pair of texts."""
        check_texts_or_pairs("inputs", inputs)
        check_settings(timeout_s=timeout_s)
        return await self._answering.classification.classify(inputs, terms_for_caller(timeout_s))

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> Sequence[int]:
        """Return the token ids of a text."""
        return await self._generator.encode(text, add_special_tokens=add_special_tokens)

    async def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        body = DetokenizeRequest(tokens=list(token_ids), skip_special_tokens=skip_special_tokens)
        return str((await self._tokenization.detokenize(body)).text) if token_ids else ""

    async def count(self, text: str, *, add_special_tokens: bool = True) -> int:
        """Return the number of tokens of a text."""
        return len(await self.encode(text, add_special_tokens=add_special_tokens))

    async def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
        template_options: Mapping[str, object] | None = None,
    ) -> str:
        """Return the text of the prompt for a chat with these messages."""
        body = {
            "messages": messages,
            "tools": list(tools) or None,
            "add_generation_prompt": add_generation_prompt,
            "chat_template_kwargs": template_options,
        }
        given = {name: value for name, value in body.items() if value is not None}
        return await self._answering.chat.render(_converted(given))

    async def _start(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None,
        logprobs: int | None,
        grammar: GrammarSpec | None,
        priority: int,
        terms: Terms,
    ) -> Generation:
        generator = self._generator
        generator.check(None)
        if sampling is None:
            defaults: dict[str, Any] = dict(generator.sampling_defaults)
            sampling = SamplingParams(**defaults)
        check_sizes(sampling, generator.max_biases)
        if grammar is not None:
            grammar = await generator.check_grammar(grammar, "grammar", terms.tenant)
        return generator.start(
            "route-",
            [await self._token_ids(prompt)],
            sampling,
            generator.plain_text(sampling, skip_special_tokens=True, logprobs=logprobs is not None),
            priority=priority,
            terms=terms,
            output=Output(logprobs=logprobs, grammar=grammar),
        )

    async def _token_ids(self, prompt: Prompt, *, add_special_tokens: bool = True) -> list[int]:
        if isinstance(prompt, str):
            return await self._generator.encode(prompt, add_special_tokens=add_special_tokens)
        return list(prompt)


def terms_for_caller(timeout_s: float | None) -> Terms:
    """Return the caller's terms for a request of a plugin's route.

    Raises:
        RequestError: the timeout is not above 0.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise RequestError(f"timeout_s is {timeout_s}; it must be above 0", param="timeout_s")
    tenant = key_name.get()
    return Terms(tenant=tenant, tenant_is_key=bool(tenant), timeout_s=timeout_s)


def _converted(body: Mapping[str, object]) -> ChatRequest:
    """Return a chat's body; raise RequestError for a member of a wrong type."""
    try:
        return msgspec.convert(msgspec.to_builtins(body), ChatRequest)
    except (msgspec.ValidationError, TypeError) as error:
        raise RequestError(f"the chat is wrong: {error}", param="messages") from error


def _text_of(deltas: Sequence[Any]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
