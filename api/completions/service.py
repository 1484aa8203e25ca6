"""Completions: turns a request into a generation, and a generation into a reply or a stream of chunks.

Does not depend on HTTP, so that routes and batch jobs use it in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from msgspec import UNSET

from llmfw.api.http.sse import DONE, comment_on
from llmfw.api.schemas.completions import DEFAULT_MAX_TOKENS, Completion, CompletionChoice, CompletionRequest
from llmfw.api.text.extras import extras_of
from llmfw.api.text.generation import Generator
from llmfw.api.text.prompt_values import check_prompt_values
from llmfw.api.text.stops import stops_of
from llmfw.api.text.structured import structure_of
from llmfw.api.text.terms import key_name, terms_of
from llmfw.api.text.token_limits import with_limits
from llmfw.api.text.truncation import Truncation
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec, SamplingParams

from .asked import Asked
from .chunks import CompletionChunks
from .prompts import Prompt, encode_fill_in, encode_prompts
from .run import CompletionGeneration

MAX_TOGETHER = 4096  # most choices of all prompts of a request together


class CompletionService:
    """Answers completion requests.

    Args:
        generator: generator that runs the prompts.
        fingerprint: returns the server's current system fingerprint.

    Attributes:
        body_type: class of the route's bodies: CompletionRequest, or a subclass with the request fields of
            plugins.
    """

    def __init__(self, generator: Generator, fingerprint: Callable[[], str]) -> None:
        self._generator = generator
        self.body_type = generator.fields.body_type(CompletionRequest, "/v1/completions")
        self._fingerprint = fingerprint

    async def start(
        self, body: CompletionRequest, *, default_max_tokens: int | None = DEFAULT_MAX_TOKENS
    ) -> CompletionGeneration:
        """Return the generation that answers a request.

        Args:
            default_max_tokens: limit of new tokens if the request has none; None: the rest of the context.

        Raises:
            RequestError: a field is wrong; names the field.
            EngineDeadError: the engine has died.
        """
        await self._generator.names.find(body.model, key_name.get())
        self._generator.check(body.model)
        asked = Asked.of(body, self._generator)
        sampling, scores_only = _sampling(body, self._generator, default_max_tokens)
        extras = extras_of(body)
        stops = await stops_of(
            body, sampling.stop, self._generator.tokenizer.eos_token_ids, self._generator.threads
        )
        terms = terms_of(body)
        grammar = await self._grammar(body, terms.tenant)
        prompts, sampling = await self._prompts(body, sampling)
        _check_number(len(prompts), asked.best_of)
        _check_prompt_values(prompts, asked.n, extras.prompt_logprobs, asked.num_echoed)
        skip = body.skip_special_tokens is not False
        _check_given(asked.given, scores_only=scores_only)
        output = asked.output(extras.prompt_logprobs, grammar)
        make_text = self._generator.plain_text(
            sampling, skip_special_tokens=skip, logprobs=output.logprobs is not None, stops=stops
        )
        generation = self._generator.start(
            "cmpl-",
            [prompt.token_ids for prompt in prompts],
            sampling,
            make_text,
            n=asked.best_of,
            priority=body.priority or 0,
            terms=terms,
            output=output,
        )
        generation.extras = extras
        return CompletionGeneration(
            generation,
            self._generator.tokenizer,
            prompts,
            n=asked.n,
            echo=asked.echo,
            num_top=asked.num_top,
            scores_only=scores_only,
            skip_special_tokens=skip,
            slices=self._generator.slices,
        )

    async def _grammar(self, body: CompletionRequest, tenant: str) -> GrammarSpec | None:
        """Return the grammar of the outputs after checking it; None: the request has none."""
        structure = structure_of(body)
        if structure is None:
            return None
        return await self._generator.check_grammar(structure.spec, structure.param, tenant)

    async def _prompts(
        self, body: CompletionRequest, sampling: SamplingParams
    ) -> tuple[list[Prompt], SamplingParams]:
        """Return the encoded prompts, and `sampling` with the tokens that end the filled-in text."""
        truncation = Truncation(body.truncate_prompt_tokens, self._generator, sampling.max_tokens)
        if not body.suffix:
            return await encode_prompts(body.prompt, truncation), sampling
        _check_whole(body)
        prompts, ends = await encode_fill_in(body.prompt, body.suffix, self._generator)
        stop_token_ids = (*sampling.stop_token_ids, *ends)
        return prompts, msgspec.structs.replace(sampling, stop_token_ids=stop_token_ids)

    async def reply(self, running: CompletionGeneration) -> Completion:
        """Run a generation to its end and return the whole reply."""
        deltas = await running.generation.finish()
        reply, extras = self._empty(running), running.generation.extras
        for index, choice in enumerate(running.best()):
            echo, echo_logprobs = await running.echo_of(choice)
            text, logprobs = await running.whole(choice, deltas[choice.index])
            ending = running.ending(choice)
            token_ids = choice.text.token_ids if running.returns_text else []
            reply.choices.append(
                CompletionChoice(
                    index=index,
                    text=echo + text,
                    logprobs=await running.joined(echo_logprobs, logprobs, running.last(choice)),
                    finish_reason=running.finish_reason(choice),
                    matched_stop=ending.matched_stop,
                    stop_reason=ending.stop_reason,
                    token_ids=token_ids if extras.token_ids else UNSET,
                    prompt_token_ids=choice.request.prompt if extras.token_ids else UNSET,
                    prompt_logprobs=await running.prompt_logprobs(choice),
                )
            )
        reply.usage = running.usage()
        return reply

    async def stream(
        self, running: CompletionGeneration, *, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events. Yields b"" if an engine event causes none.

        Each choice starts with the echo of its prompt. If the echo has log probabilities, it is sent after
        the first event of the prompt's first choice, which reports them. Until then, the output of the
        prompt's other choices is held back.
        """
        chunks: CompletionChunks | None = None
        echoes = b""
        held = dict.fromkeys(range(running.num_prompts), b"") if running.echoes_logprobs else {}
        async with contextlib.aclosing(running.generation.events()) as events:
            async for choice, deltas in events:
                if choice.wait is not None:
                    yield comment_on(choice.wait)
                    continue
                if chunks is None:  # not earlier: a request may wait until other weights are loaded
                    chunks = self._chunks(running, include_usage)
                    if not running.echoes_logprobs:
                        echoes = b"".join([await chunks.echo(c) for c in running.generation.choices])
                data = echoes + chunks.text(choice, deltas)
                echoes = b""
                if choice.text.finish_reason is not None:
                    data += chunks.finish(choice)
                prompt = running.prompt_index(choice)
                if prompt in held:
                    held[prompt] += data
                    if choice is not running.first(choice):
                        yield b""
                        continue
                    siblings = running.siblings(choice)
                    before = b"".join([await chunks.echo(c) for c in siblings])
                    data = before + held.pop(prompt)
                yield data
        assert chunks is not None, "the generation ended without an event"
        yield (chunks.usage(running.usage()) if include_usage else b"") + DONE

    def _chunks(self, running: CompletionGeneration, include_usage: bool) -> CompletionChunks:
        """Return the encoder of a stream's chunks, with the fingerprint of the current weights."""
        empty = self._empty(running)
        if include_usage:
            empty.usage = None
        return CompletionChunks(empty, running)

    def _empty(self, running: CompletionGeneration) -> Completion:
        return Completion(
            id=running.generation.id,
            created=running.generation.created,
            model=running.generation.model,
            system_fingerprint=self._generator.fingerprint(self._fingerprint(), running.generation),
            choices=[],
            usage=UNSET,
        )


def _check_given(given: Sequence[int], *, scores_only: bool) -> None:
    """Raise RequestError for named tokens in a request that generates none."""
    if given and scores_only:
        raise RequestError(
            "logprob_token_ids is given, and max_tokens is 0; they are of generated tokens only: leave one out",
            param="logprob_token_ids",
        )


def _check_number(num_prompts: int, best_of: int) -> None:
    """Raise RequestError if all prompts together have more choices than one request may run."""
    if num_prompts * best_of > MAX_TOGETHER:
        raise RequestError(
            f"prompt holds {num_prompts} prompts of {best_of} choices each, together {num_prompts * best_of}; "
            f"at most {MAX_TOGETHER} are allowed: send several requests",
            param="n",
        )


def _check_prompt_values(
    prompts: Sequence[Prompt], n: int, num_scored: int | None, num_echoed: int | None
) -> None:
    """Raise RequestError if the reply would have too many log probabilities of prompt tokens."""
    for param, num_top in (("prompt_logprobs", num_scored), ("echo", num_echoed)):
        if num_top is not None:
            check_prompt_values([prompt.token_ids for prompt in prompts], 1 + num_top, n, param)


def _check_whole(body: CompletionRequest) -> None:
    """Raise RequestError if the request truncates a fill-in-the-middle prompt."""
    if body.truncate_prompt_tokens is not None:
        raise RequestError(
            f"truncate_prompt_tokens is {body.truncate_prompt_tokens} and suffix is given; what is filled in is not "
            "truncated: leave one of them out",
            param="truncate_prompt_tokens",
        )


def _sampling(
    body: CompletionRequest, generator: Generator, default_max_tokens: int | None
) -> tuple[SamplingParams, bool]:
    """Return the sampling parameters, and whether only the prompt's scores are requested.

    If only the scores are requested, max_tokens is 1, because the engine always generates a token.
    """
    if body.echo and body.suffix:
        raise RequestError("echo and suffix are both given; what is filled in has no echo", param="echo")
    scores_only = body.max_tokens == 0 and bool(body.echo)
    max_tokens = default_max_tokens if body.max_tokens is None else body.max_tokens
    sampling = generator.sampling(body, 1 if scores_only else max_tokens)
    return with_limits(sampling, body, generator.tokenizer), scores_only
