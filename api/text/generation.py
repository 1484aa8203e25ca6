"""The only path from a prompt to a stream of text events, for routes and all other code that generates.

`Generator` turns prompts and sampling parameters into engine requests. A `Generation` runs them: it has one
or more choices, each with its own request and its own text. This module does not depend on HTTP or on any
request schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import EngineDeadError, RequestError
from llmfw.core.base.media import MediaSpan
from llmfw.core.base.request import (
    FinishReason,
    GrammarSpec,
    Request,
    SamplingParams,
    TokenEvent,
)
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.tokenizer import Tokenizer

from .choice import Choice, MakeText
from .choices_in_flight import ChoicesInFlight
from .encoder import PromptEncoder
from .engine_places import EnginePlaces
from .generation_prompt import GenerationPrompt, Output
from .grammar_check import GrammarChecker
from .model_names import ModelNames
from .prompt_fit import check_media, check_settings, check_token_ids, fitted_sampling
from .reply_extras import NO_EXTRAS
from .request_fields import NO_FIELDS, RequestFields
from .sampling import MAX_BIASES, to_sampling, with_own_seed
from .slices import SLICE, Slices, num_values
from .stops import Stops
from .terms import Terms
from .text_stream import NO_STOPS, Delta, TextStream
from .threads import TextThreads


class Generation:
    """The choices of one client request, while they run.

    Attributes:
        id: id of the reply, with its prefix, as the client sees it.
        model: name of the model for the reply: the served one, or an adapter.
        created: seconds since the epoch.
        extras: optional parts of the reply that the client asked for.
    """

    def __init__(
        self,
        id: str,
        client: EngineClient,
        choices: Sequence[Choice],
        places: EnginePlaces | None = None,
        model: str = "",
    ) -> None:
        self.id = id
        self.model = model
        self.created = int(time.time())
        self.choices = choices
        self.extras = NO_EXTRAS
        self._client = client
        self._places = places

    def rename(self, id: str) -> None:
        """Give the generation and its requests another id. Call it before any request is sent."""
        self.id = id
        for choice in self.choices:
            choice.request = msgspec.structs.replace(choice.request, id=f"{id}-{choice.index}")

    def events(self, *, may_restart: bool = False) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        """Send the requests, and yield the deltas of each event with its choice. An event may have no deltas.

        Closing the iterator before its end aborts the requests that still run. If several choices have
        `tell_wait`, nothing is yielded until the engine has accepted all choices that are sent at first.

        Args:
            may_restart: whether the caller drops the earlier output of a choice that `has_restarted`. The
                engine may then be replaced while the choice runs.

        Raises:
            LLMFWError: as in `EngineClient.generate`; the other choices are aborted.
        """
        if may_restart:
            for choice in self.choices:
                choice.request = msgspec.structs.replace(choice.request, may_restart=True)
        return self._one(self.choices[0]) if len(self.choices) == 1 else self._merged()

    async def finish(self) -> dict[int, list[Delta]]:
        """Run all choices to their end; return all deltas by choice index."""
        deltas: dict[int, list[Delta]] = {choice.index: [] for choice in self.choices}
        async with contextlib.aclosing(self.events(may_restart=True)) as events:
            async for choice, new in events:
                if choice.has_restarted:
                    deltas[choice.index].clear()
                deltas[choice.index] += new
        return deltas

    async def _one(self, choice: Choice) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        async with contextlib.aclosing(self._client.generate(choice.request)) as events:
            async for event in events:
                deltas = choice.feed(event)
                if choice.text.finish_reason is None:
                    yield choice, deltas
                    continue
                if event.finish_reason is None:  # a stop string ended the text, but not the request
                    self._client.note_end(choice.request.id, FinishReason.STOP)
                yield choice, deltas
                return

    async def _merged(self) -> AsyncGenerator[tuple[Choice, Sequence[Delta]], None]:
        """Run the choices concurrently, and yield their events as they arrive.

        A choice's text processes an event only when the event is yielded, so that `choice.text` never runs
        ahead of the events that the caller has seen. The events of one step are processed in slices, so that
        other requests run in between.
        """
        flight = ChoicesInFlight(self._client, self.choices, self._places)
        held: deque[tuple[Choice, TokenEvent | Exception | None]] = deque()
        spent = 0
        try:
            unheard = {i for i in flight.first if self.choices[i].request.tell_wait}
            while held or flight.is_open:
                unheard -= flight.put_off
                choice, item = await flight.next() if unheard or not held else held.popleft()
                if isinstance(item, Exception):
                    raise item
                if unheard:
                    unheard.discard(choice.index)
                    held.append((choice, item))
                elif item is not None and choice.text.finish_reason is None:
                    spent += num_values(item)
                    if spent > SLICE:
                        await asyncio.sleep(0)
                        spent = 0
                    deltas = choice.feed(item)
                    if choice.text.finish_reason is not None:
                        flight.end(choice)
                    yield choice, deltas
        finally:
            await flight.close()


class Generator:
    """Turns prompts and sampling parameters into generations.

    Args:
        client: a started engine client.
        tokenizer: tokenizer of the model.
        served_name: name of the model for clients.
        grammar_checker: checker of grammars; None: no structured output.
        sampling_defaults: SamplingParams field → the model's default, for requests that leave it unset.
        places: limit on the choices of client requests with several choices in the engine; None: no limit.
        max_biases: maximum number of entries of logit_bias.
        fields: active request fields of plugins.
        names: names of the model and its adapters, which other generators may share; None: the engine's
            current names.

    Attributes:
        max_biases: the constructor's argument.
        texts: encoder of prompts, which encodes long ones in threads.
        threads: thread pool for `texts` and for templates.
        slices: scheduler of the work on large lists in replies.
    """

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        served_name: str,
        grammar_checker: GrammarChecker | None = None,
        sampling_defaults: Mapping[str, float] | None = None,
        places: EnginePlaces | None = None,
        max_biases: int = MAX_BIASES,
        fields: RequestFields = NO_FIELDS,
        names: ModelNames | None = None,
    ) -> None:
        self.client = client
        self.fields = fields
        self.tokenizer = tokenizer
        self.served_name = served_name
        self.names = names or ModelNames(served_name, client.info.model, client.info.adapters)
        self.sampling_defaults = dict(sampling_defaults or {})
        self._grammar_checker = grammar_checker
        self._places = places
        self.max_biases = max_biases
        self.threads = TextThreads()
        self.slices = Slices()
        self.texts = PromptEncoder(tokenizer, lambda: self.info.max_model_len, self.threads)

    @property
    def info(self) -> EngineInfo:
        """The properties of the engine."""
        return self.client.info

    def is_named(self, model: str) -> bool:
        """Return whether clients may use this name for the model or one of its adapters (see `ModelNames`)."""
        return model in self.names

    def fingerprint(self, of_model: str, generation: Generation) -> str:
        """Return the system fingerprint of a generation's replies (see `ModelNames.fingerprint`)."""
        return self.names.fingerprint(of_model, generation.model)

    def check(self, model: str | None, task: str | None = "generate") -> None:
        """Check that this server can run a request for this model and task.

        None accepts any model or any task.

        Raises:
            ModelNotFoundError: the request names another model.
            RequestError: the model serves another task.
            EngineDeadError: the engine is dead.
        """
        self.names.adapter_of(model)
        if task is not None and task != (served := self.info.task):
            does = {"embed": "embeds", "generate": "generates", "classify": "classifies"}
            raise RequestError(
                f"model {self.served_name!r} {does[served]}; it cannot {task}",
                code="unsupported_operation",
            )
        if (failure := self.client.failure) is not None:
            raise EngineDeadError(failure)

    def sampling(
        self, body: msgspec.Struct, max_tokens: int | None, renamed: dict[str, str] | None = None
    ) -> SamplingParams:
        """Return the sampling parameters of a request body (see `to_sampling`)."""
        return to_sampling(body, max_tokens, renamed, self.sampling_defaults, self.max_biases)

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return a prompt's token ids. A long prompt does not block the event loop.

        Raises:
            ContextLengthError: the text cannot fit into the context.
        """
        return await self.texts.encode(text, add_special_tokens=add_special_tokens)

    async def check_grammar(self, spec: GrammarSpec, param: str, tenant: str = "") -> GrammarSpec:
        """Return the checked grammar, in the form that the engine compiles (see `GrammarChecker.check`).

        Raises:
            RequestError: the grammar cannot be enforced; names the request field.
        """
        checker = self._grammar_checker or GrammarChecker(None, self.tokenizer, self.info.vocab_size)
        return await checker.check(spec, param, tenant)

    async def close(self) -> None:
        """Stop the processes that compile grammars, and drop queued work on texts."""
        self.threads.close()
        if self._grammar_checker is not None:
            await self._grammar_checker.close()

    def plain_text(
        self, sampling: SamplingParams, *, skip_special_tokens: bool, logprobs: bool, stops: Stops = NO_STOPS
    ) -> MakeText:
        """Return a factory of plain text streams: no reasoning or tool calls are parsed."""
        token_bytes = self.tokenizer.token_bytes if logprobs else None

        def make_text(prompt: Sequence[int]) -> TextStream:
            return TextStream(
                self.tokenizer.detokenizer(prompt, skip_special_tokens=skip_special_tokens),
                stop=sampling.stop,
                stops=stops,
                min_tokens=sampling.min_tokens,
                token_bytes=token_bytes,
            )

        return make_text

    def start(
        self,
        prefix: str,
        prompts: Sequence[list[int]],
        sampling: SamplingParams,
        make_text: MakeText,
        *,
        n: int = 1,
        priority: int = 0,
        terms: Terms | None = None,
        output: Output | None = None,
        max_tokens_param: str = "max_tokens",
        media: Sequence[tuple[MediaSpan, ...]] = (),
    ) -> Generation:
        """Return a generation of prompts with the same settings (see `start_prompts`).

        Args:
            output: further settings of each choice.
            media: images of each prompt; empty: there are none.
        """
        output = output or Output()
        with_settings = [
            GenerationPrompt(prompt, sampling, make_text, output, spans)
            for prompt, spans in zip(prompts, media or [()] * len(prompts), strict=True)
        ]
        return self.start_prompts(
            prefix, with_settings, n=n, priority=priority, terms=terms, max_tokens_param=max_tokens_param
        )

    def start_prompts(
        self,
        prefix: str,
        prompts: Sequence[GenerationPrompt],
        *,
        n: int = 1,
        priority: int = 0,
        terms: Terms | None = None,
        max_tokens_param: str = "max_tokens",
    ) -> Generation:
        """Return a generation with n choices per prompt, prompt-major.

        Sends nothing until its events are read. Only a prompt's first choice returns the prompt's log
        probabilities.

        Args:
            prefix: prefix of the id.
            n: choices per prompt.
            terms: tenant, timeout and cache terms of each choice.
            max_tokens_param: request field that set `max_tokens`, for errors.

        Raises:
            RequestError: a prompt is empty or too long, a token id is unknown, or the choices are too large.
            ModelNotFoundError: there is no such model.
        """
        terms = terms or Terms()
        adapter = self.names.adapter_of(terms.model)
        id = f"{prefix}{os.urandom(16).hex()}"
        info = self.info
        self._check_prompts(prompts, n, info)
        choices: list[Choice] = []
        for prompt in prompts:
            sampling = fitted_sampling(prompt.sampling, prompt.token_ids, info, max_tokens_param)
            for i in range(n):
                index = len(choices)
                request = self._request(f"{id}-{index}", prompt, sampling, i, priority, terms, adapter)
                choices.append(Choice(index, request, prompt.make_text))
        return Generation(id, self.client, choices, self._places, adapter or self.served_name)

    def _request(
        self,
        id: str,
        prompt: GenerationPrompt,
        sampling: SamplingParams,
        i: int,
        priority: int,
        terms: Terms,
        adapter: str,
    ) -> Request:
        """Return the engine request of a prompt's i-th choice."""
        output = prompt.output
        ignore_eos = sampling.ignore_eos and output.grammar is None
        return Request(
            id=id,
            prompt=prompt.token_ids,
            sampling=with_own_seed(sampling, i),
            eos_token_ids=() if ignore_eos else self.tokenizer.eos_token_ids,
            priority=priority,
            logprobs=output.logprobs,
            prompt_logprobs=output.prompt_logprobs if i == 0 else None,
            prompt_logprobs_start=output.prompt_logprobs_start if i == 0 else 1,
            grammar=output.grammar,
            thinking=output.thinking,
            constrained_logprobs=output.constrained_logprobs,
            logprob_token_ids=output.logprob_token_ids,
            prompt_logprob_token_ids=output.prompt_logprob_token_ids if i == 0 else (),
            tenant=terms.tenant,
            tenant_is_key=terms.tenant_is_key,
            cache_salt=terms.cache_salt,
            timeout_s=terms.timeout_s,
            tell_wait=terms.tell_wait,
            fields=terms.fields,
            adapter=adapter,
            media=prompt.media,
        )

    def _check_prompts(self, prompts: Sequence[GenerationPrompt], n: int, info: EngineInfo) -> None:
        """Raise RequestError if settings have an unknown token id, or if all choices are too large to send.

        Each choice carries its prompt and its settings.
        """
        for sampling in {id(prompt.sampling): prompt.sampling for prompt in prompts}.values():
            check_token_ids("stop_token_ids", sampling.stop_token_ids, info)
            check_token_ids("logit_bias", tuple(sampling.logit_bias), info)
        num_tokens = sum([len(prompt.token_ids) for prompt in prompts])
        self.texts.check_together(n * num_tokens, "n" if n > 1 else "prompt")
        check_media([prompt.media for prompt in prompts], n)
        check_settings([(prompt.sampling, prompt.output) for prompt in prompts], n)
