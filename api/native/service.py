"""Generates text as SGLang's native API does, with its field names and replies. Does not depend on HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import msgspec

from llmfw.api.completions.prompts import MAX_PROMPTS
from llmfw.api.http.sse import DONE, comment_on, frame
from llmfw.api.schemas.native import GenerateReply, GenerateRequest, MetaInfo, NativeSampling
from llmfw.api.text.generation import Choice, Generation, Generator, Output
from llmfw.api.text.structured import structure_of
from llmfw.api.text.terms import terms_of
from llmfw.api.text.text_stream import Delta
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.parsers import ContentDelta

from .logprobs import LogprobForm, num_prompt_top, num_top

DEFAULT_MAX_NEW_TOKENS = 128  # as in SGLang

_RENAMED = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}


class NativeGeneration(msgspec.Struct):
    """A running generation.

    Attributes:
        is_list: whether the client sent a list of prompts.
        logprobs: formatter for log probabilities; None: the client wants none.
    """

    generation: Generation
    is_list: bool
    logprobs: LogprobForm | None


class NativeService:
    """Answers requests to /generate.

    Args:
        generator: generator that runs the prompts.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def start(self, body: GenerateRequest) -> NativeGeneration:
        """Start the generation that answers a request.

        Raises:
            RequestError: a field is wrong; the error names it.
            EngineDeadError: the engine has died, so nothing can be generated.
        """
        self._generator.check(None)
        given = body.sampling_params or NativeSampling()
        max_tokens = DEFAULT_MAX_NEW_TOKENS if given.max_new_tokens is None else given.max_new_tokens
        sampling = self._generator.sampling(given, max_tokens, _RENAMED)
        prompts, is_list = await self._prompts(body)
        tokenizer, skip = self._generator.tokenizer, given.skip_special_tokens is not False
        structure, terms, grammar = structure_of(given, "sampling_params."), terms_of(body), None
        if structure is not None:
            grammar = await self._generator.check_grammar(structure.spec, structure.param, terms.tenant)
        output = Output(
            logprobs=num_top(body),
            prompt_logprobs=num_prompt_top(body),
            grammar=grammar,
        )
        make_text = self._generator.plain_text(
            sampling, skip_special_tokens=skip, logprobs=output.logprobs is not None
        )

        generation = self._generator.start(
            "gen-",
            prompts,
            sampling,
            make_text,
            priority=body.priority or 0,
            terms=terms,
            output=output,
            max_tokens_param="max_new_tokens",
        )
        logprobs = None if output.logprobs is None else LogprobForm(body, tokenizer, self._generator.slices)
        return NativeGeneration(generation, is_list, logprobs)

    async def reply(self, running: NativeGeneration) -> GenerateReply | list[GenerateReply]:
        """Run a generation to its end and return the reply, or a list of replies for a list of prompts."""
        deltas = await running.generation.finish()
        replies = [
            await _reply(running, choice, _text_of(deltas[choice.index]))
            for choice in running.generation.choices
        ]
        return replies if running.is_list else replies[0]

    async def stream(self, running: NativeGeneration) -> AsyncGenerator[bytes, None]:
        """Run a generation and yield server-sent events, each with the whole output of one prompt so far.

        If an engine event adds no text, yields a comment on the prompt's wait, or b"" if the prompt does not
        wait.
        """
        texts = [""] * len(running.generation.choices)
        async with contextlib.aclosing(running.generation.events()) as events:
            async for choice, deltas in events:
                new = _text_of(deltas)
                texts[choice.index] += new
                if new or choice.text.finish_reason is not None:
                    reply = await _reply(running, choice, texts[choice.index])
                    if running.is_list:
                        reply.index = choice.index
                    yield frame(msgspec.json.encode(reply))
                else:
                    yield comment_on(choice.wait)
        yield DONE

    async def _prompts(self, body: GenerateRequest) -> tuple[list[list[int]], bool]:
        """Return the prompts' token ids, and whether the client sent a list of prompts."""
        if body.text is not None and body.input_ids is not None:
            raise RequestError("text and input_ids are both given; give one", param="input_ids")
        given, param = (body.text, "text") if body.input_ids is None else (body.input_ids, "input_ids")
        if given is None:
            raise RequestError("text is missing; give text or input_ids", param="text")
        if isinstance(given, str):
            return [await self._generator.encode(given)], False
        kinds = {type(each) for each in given}
        if kinds == {int}:
            return [cast("list[int]", given)], False
        if len(kinds) != 1 or len(given) > MAX_PROMPTS:
            raise RequestError(
                f"{param} holds {len(given)} items; a list of prompts has 1 to {MAX_PROMPTS}, all of one kind",
                param=param,
            )
        if kinds == {str}:
            return await self._generator.texts.encode_all(cast("list[str]", given), param), True
        return cast("list[list[int]]", given), True


def _text_of(deltas: Sequence[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])


async def _reply(running: NativeGeneration, choice: Choice, text: str) -> GenerateReply:
    meta = MetaInfo(
        id=choice.request.id if running.is_list else running.generation.id,
        finish_reason=_finish_reason(choice),
        prompt_tokens=len(choice.request.prompt),
        completion_tokens=len(choice.text.token_ids),
        cached_tokens=choice.text.num_cached_tokens,
    )
    if running.logprobs is not None:
        await running.logprobs.fill(meta, choice)
    return GenerateReply(text=text, meta_info=meta)


def _finish_reason(choice: Choice) -> dict[str, Any] | None:
    reason = choice.text.finish_reason
    if reason is None:
        return None
    if reason == "length":
        return {"type": reason, "length": len(choice.text.token_ids)}
    return {"type": reason, "matched": choice.text.stopped_by}
