"""Turns the sampling parameters of /generate into the settings of each prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from llmfw.api.chat.thinking import is_thinking
from llmfw.api.schemas.native import GenerateRequest, NativeSampling
from llmfw.api.text.choice import MakeText
from llmfw.api.text.generation import Generator
from llmfw.api.text.generation_prompt import GenerationPrompt, Output
from llmfw.api.text.stops import Stops, stops_of
from llmfw.api.text.structured import structure_of
from llmfw.api.text.terms import Terms
from llmfw.api.text.text_stream import TextStream
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.interfaces.parsers import ReasoningParser

from .logprobs import first_scored, num_prompt_top, num_top

DEFAULT_MAX_NEW_TOKENS = 128  # as in SGLang

MAX_COMPILED = 64
"""Maximum number of different sampling parameters of a request that have a grammar or patterns to compile."""

_RENAMED = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
_MARKER_TOKENS = 32  # a marker that starts the thinking has fewer tokens


class _Settings(msgspec.Struct, frozen=True):
    sampling: SamplingParams
    make_text: MakeText
    output: Output


class PromptMaker:
    """Makes the prompts of a request's generation. Prompts with equal sampling parameters share settings.

    Args:
        body: request body.
        terms: terms of the request, which name the tenant for whom grammars are compiled.
        reasoning: parser that finds the reasoning, whose tokens are counted; None: they are not counted.
    """

    def __init__(
        self,
        body: GenerateRequest,
        generator: Generator,
        terms: Terms,
        reasoning: type[ReasoningParser] | None,
    ) -> None:
        self._body = body
        self._generator = generator
        self._tenant = terms.tenant
        self._reasoning = reasoning
        self._made: dict[bytes, _Settings] = {}
        self._num_compiled = 0

    async def make(
        self, prompts: Sequence[list[int]], given: Sequence[NativeSampling]
    ) -> list[GenerationPrompt]:
        """Return each prompt with its settings.

        Args:
            given: sampling parameters of each prompt.

        Raises:
            RequestError: a field is wrong; names it.
        """
        if not isinstance(self._body.sampling_params, list):
            settings = await self._settings(given[0], "sampling_params.")
            return [self._with_settings(each, settings) for each in prompts]
        with_settings: list[GenerationPrompt] = []
        for i, (prompt, each) in enumerate(zip(prompts, given, strict=True)):
            key = msgspec.json.encode(each)
            if key not in self._made:
                self._made[key] = await self._own_settings(each, i)
            with_settings.append(self._with_settings(prompt, self._made[key]))
        return with_settings

    def _with_settings(self, prompt: list[int], made: _Settings) -> GenerationPrompt:
        first = first_scored(self._body, len(prompt))
        output = (
            msgspec.structs.replace(made.output, prompt_logprobs_start=first) if first > 1 else made.output
        )
        return GenerationPrompt(prompt, made.sampling, made.make_text, output)

    async def _own_settings(self, given: NativeSampling, i: int) -> _Settings:
        """Return the settings of one prompt of a list. Errors name its item of `sampling_params`."""
        try:
            return await self._settings(given, "")
        except RequestError as error:
            name = f"sampling_params[{i}]"
            param = name if error.param is None else f"{name}.{error.param}"
            raise RequestError(f"{name}: {error}", param=param, code=error.code) from error

    async def _settings(self, given: NativeSampling, prefix: str) -> _Settings:
        sampling = self._sampling(given)
        tokenizer = self._generator.tokenizer
        structure, grammar = structure_of(given, prefix), None
        if structure is not None or given.stop_regex:
            self._count_compiled()
        stops = await stops_of(given, sampling.stop, tokenizer.eos_token_ids, self._generator.threads)
        if structure is not None:
            grammar = await self._generator.check_grammar(structure.spec, structure.param, self._tenant)
        output = Output(
            logprobs=num_top(self._body), prompt_logprobs=num_prompt_top(self._body), grammar=grammar
        )
        return _Settings(sampling, self._make_text(given, sampling, stops), output)

    def _sampling(self, given: NativeSampling) -> SamplingParams:
        """Return the sampling parameters. `max_tokens` is at least 1: the engine always generates a token."""
        most = given.max_new_tokens
        if scores_only(given) and given.min_new_tokens:
            raise RequestError(
                f"min_new_tokens is {given.min_new_tokens}; it must be at most max_new_tokens (0)",
                param="min_new_tokens",
            )
        max_tokens = DEFAULT_MAX_NEW_TOKENS if most is UNSET else 1 if scores_only(given) else most
        return self._generator.sampling(given, max_tokens, _RENAMED)

    def _make_text(self, given: NativeSampling, sampling: SamplingParams, stops: Stops) -> MakeText:
        tokenizer, reasoning = self._generator.tokenizer, self._reasoning
        skip = given.skip_special_tokens is not False
        token_bytes = tokenizer.token_bytes if self._body.return_logprob else None

        def make_text(prompt: Sequence[int]) -> TextStream:
            parser = None
            if reasoning is not None and counts_reasoning(reasoning, given):
                end = tokenizer.decode(prompt[-_MARKER_TOKENS:], skip_special_tokens=False)
                parser = reasoning(in_reasoning=is_thinking(reasoning, end))
            return TextStream(
                tokenizer.detokenizer(prompt, skip_special_tokens=skip),
                stop=sampling.stop,
                stops=stops,
                min_tokens=sampling.min_tokens,
                reasoning=parser,
                keeps_reasoning=True,
                token_bytes=token_bytes,
            )

        return make_text

    def _count_compiled(self) -> None:
        self._num_compiled += 1
        if self._num_compiled > MAX_COMPILED:
            raise RequestError(
                f"more than {MAX_COMPILED} prompts have grammars or stop_regex that differ; send several requests",
                param="stop_regex",
            )


def with_given_ids(
    prompts: Sequence[GenerationPrompt], given_ids: Sequence[tuple[int, ...]]
) -> list[GenerationPrompt]:
    """Return prompts that report the log probabilities of named tokens, in the output and in a scored prompt.

    Args:
        given_ids: tokens that are named for each prompt. Prompts with the same settings and the same tokens
            still share settings.
    """
    made: dict[tuple[int, tuple[int, ...]], Output] = {}
    found = []
    for prompt, ids in zip(prompts, given_ids, strict=True):
        key = id(prompt.output), ids
        if key not in made:
            scored = ids if prompt.output.prompt_logprobs is not None else ()
            made[key] = msgspec.structs.replace(
                prompt.output, logprob_token_ids=ids, prompt_logprob_token_ids=scored
            )
        found.append(GenerationPrompt(prompt.token_ids, prompt.sampling, prompt.make_text, made[key]))
    return found


def scores_only(given: NativeSampling) -> bool:
    """Return whether a prompt is only scored, and nothing is generated."""
    return given.max_new_tokens == 0


def counts_reasoning(parser: type[ReasoningParser] | None, given: NativeSampling) -> bool:
    """Return whether the tokens of the reasoning can be counted.

    A parser that reads special tokens cannot find the reasoning in a text without them.
    """
    return parser is not None and not (parser.needs_special_tokens and given.skip_special_tokens is not False)
