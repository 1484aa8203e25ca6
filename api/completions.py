"""Completions: a body becomes a generation, a generation becomes a reply or a stream of chunks.

Knows the OpenAI form of both, nothing of HTTP: a batch job uses it as a route does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import cast

import msgspec
from msgspec import UNSET

from llmfw.core.errors import RequestError
from llmfw.core.parsers import ContentDelta
from llmfw.core.tokenizer import Tokenizer

from .generation import Choice, Generation, Generator, Output
from .sampling import to_sampling
from .schemas.common import Usage
from .schemas.completions import DEFAULT_MAX_TOKENS, Completion, CompletionChoice, CompletionRequest
from .sse import DONE, frame
from .structured import structure_of
from .text_stream import Delta, TextStream
from .usage import usage_of

MAX_PROMPTS = 2048

_MARK = "\x00text\x00"
_encode = msgspec.json.Encoder().encode


class CompletionGeneration(msgspec.Struct):
    """A running completion.

    Attributes:
        num_prompts: over so many prompts its choices are spread.
        echoes: by choice index, what comes before the new text.
    """

    generation: Generation
    num_prompts: int
    echoes: list[str]


class CompletionService:
    """Continues prompts.

    Args:
        generator: runs the prompts.
        fingerprint: of model, engine and versions.
    """

    def __init__(self, generator: Generator, fingerprint: str) -> None:
        self._generator = generator
        self._fingerprint = fingerprint

    async def start(self, body: CompletionRequest) -> CompletionGeneration:
        """Return the generation that answers a body.

        Raises:
            RequestError: names the field that is wrong.
            EngineDeadError: nothing can be generated any more.
        """
        self._generator.check(body.model)
        n = body.n or 1
        if body.best_of is not None and body.best_of != n:
            raise RequestError(
                f"best_of is {body.best_of} and n is {n}; this server supports only best_of equal to n",
                param="best_of",
                code="unsupported_parameter",
            )
        max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
        sampling = to_sampling(body, max_tokens, defaults=self._generator.sampling_defaults)
        structure = structure_of(body)
        if structure is not None:
            await self._generator.check_grammar(structure.spec, structure.param)
        tokenizer = self._generator.tokenizer
        skip = body.skip_special_tokens is not False
        prompts = await _encode_prompts(body.prompt, tokenizer)

        def make_text(prompt: Sequence[int]) -> TextStream:
            detokenizer = tokenizer.detokenizer(prompt, skip_special_tokens=skip)
            return TextStream(detokenizer, stop=sampling.stop, min_tokens=sampling.min_tokens)

        generation = self._generator.start(
            "cmpl-",
            [token_ids for token_ids, _ in prompts],
            sampling,
            make_text,
            n=n,
            priority=body.priority or 0,
            output=Output(grammar=structure.spec if structure else None),
        )
        echoes = [
            (tokenizer.decode(token_ids, skip_special_tokens=skip) if text is None else text)
            if body.echo
            else ""
            for token_ids, text in prompts
            for _ in range(n)
        ]
        return CompletionGeneration(generation, len(prompts), echoes)

    async def reply(self, running: CompletionGeneration) -> Completion:
        """Run a generation to its end and return the whole reply."""
        deltas = await running.generation.finish()
        reply = self._empty(running.generation)
        reply.choices = [
            CompletionChoice(
                index=choice.index,
                text=running.echoes[choice.index] + _text_of(deltas[choice.index]),
                finish_reason=choice.text.finish_reason,
            )
            for choice in running.generation.choices
        ]
        reply.usage = usage_of(running.generation, running.num_prompts)
        return reply

    async def stream(
        self, running: CompletionGeneration, *, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events."""
        generation = running.generation
        chunk = self._empty(generation)
        if include_usage:
            chunk.usage = None
        frames = [_around_text(chunk, choice) for choice in generation.choices]
        echoes = [_encode_text(frames[i], echo) for i, echo in enumerate(running.echoes) if echo]
        if echoes:
            yield b"".join(echoes)
        async with contextlib.aclosing(generation.events()) as events:
            async for choice, deltas in events:
                text = _text_of(deltas)
                data = _encode_text(frames[choice.index], text) if text else b""
                if choice.text.finish_reason is not None:
                    data += _finish_frame(chunk, choice)
                if data:
                    yield data
        end = _usage_frame(chunk, usage_of(generation, running.num_prompts)) if include_usage else b""
        yield end + DONE

    def _empty(self, generation: Generation) -> Completion:
        return Completion(
            id=generation.id,
            created=generation.created,
            model=self._generator.served_name,
            system_fingerprint=self._fingerprint,
            choices=[],
            usage=UNSET,
        )


async def _encode_prompts(
    prompt: str | list[str | int | list[int]], tokenizer: Tokenizer
) -> list[tuple[list[int], str | None]]:
    """Return token ids, and the text where there is one, of each prompt in the body's field."""
    if isinstance(prompt, str):
        return [(await tokenizer.encode_aside(prompt), prompt)]
    if not prompt:
        raise RequestError("prompt is an empty list; at least one prompt is needed", param="prompt")
    if len({type(item) for item in prompt}) > 1:
        raise RequestError(
            "prompt mixes kinds; it must be a string, token ids, or a list of strings or of lists of token ids",
            param="prompt",
        )
    if isinstance(prompt[0], int):
        return [(cast("list[int]", prompt), None)]
    if len(prompt) > MAX_PROMPTS:
        raise RequestError(
            f"prompt holds {len(prompt)} prompts; at most {MAX_PROMPTS} are allowed", param="prompt"
        )
    if isinstance(prompt[0], str):
        return [(await tokenizer.encode_aside(text), text) for text in cast("list[str]", prompt)]
    return [(token_ids, None) for token_ids in cast("list[list[int]]", prompt)]


def _text_of(deltas: Sequence[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])


def _around_text(chunk: Completion, choice: Choice) -> tuple[bytes, bytes]:
    """Return a choice's chunk but for its text, which comes in between."""
    choices = [CompletionChoice(index=choice.index, text=_MARK)]
    before, after = frame(_encode(msgspec.structs.replace(chunk, choices=choices))).split(_encode(_MARK))
    return before, after


def _encode_text(around: tuple[bytes, bytes], text: str) -> bytes:
    return b"%b%b%b" % (around[0], _encode(text), around[1])


def _finish_frame(chunk: Completion, choice: Choice) -> bytes:
    choices = [CompletionChoice(index=choice.index, text="", finish_reason=choice.text.finish_reason)]
    return frame(_encode(msgspec.structs.replace(chunk, choices=choices)))


def _usage_frame(chunk: Completion, usage: Usage) -> bytes:
    return frame(_encode(msgspec.structs.replace(chunk, usage=usage)))
