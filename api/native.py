"""SGLang's native generation: one prompt, its own names and form of reply. Knows nothing of HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from llmfw.core.errors import RequestError
from llmfw.core.parsers import ContentDelta

from .generation import Choice, Generation, Generator
from .sampling import to_sampling
from .schemas.native import GenerateReply, GenerateRequest, MetaInfo, NativeSampling
from .sse import DONE, frame
from .text_stream import Delta, TextStream

DEFAULT_MAX_NEW_TOKENS = 128  # SGLang's

_RENAMED = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}


class NativeService:
    """Continues one prompt.

    Args:
        generator: runs it.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def start(self, body: GenerateRequest) -> Generation:
        """Return the generation that answers a body.

        Raises:
            RequestError: names the field that is wrong.
            EngineDeadError: nothing can be generated any more.
        """
        self._generator.check(None)
        given = body.sampling_params or NativeSampling()
        max_tokens = DEFAULT_MAX_NEW_TOKENS if given.max_new_tokens is None else given.max_new_tokens
        sampling = to_sampling(given, max_tokens, _RENAMED, self._generator.sampling_defaults)
        prompt = await self._prompt(body)
        tokenizer, skip = self._generator.tokenizer, given.skip_special_tokens is not False

        def make_text(prompt: Sequence[int]) -> TextStream:
            detokenizer = tokenizer.detokenizer(prompt, skip_special_tokens=skip)
            return TextStream(detokenizer, stop=sampling.stop, min_tokens=sampling.min_tokens)

        return self._generator.start("gen-", [prompt], sampling, make_text, max_tokens_param="max_new_tokens")

    async def reply(self, generation: Generation) -> GenerateReply:
        """Run a generation to its end and return the whole reply."""
        deltas = await generation.finish()
        return _reply(generation, _text_of(deltas[0]))

    async def stream(self, generation: Generation) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events: each has the whole text so far."""
        text = ""
        async with contextlib.aclosing(generation.events()) as events:
            async for choice, deltas in events:
                new = _text_of(deltas)
                text += new
                if new or choice.text.finish_reason is not None:
                    yield frame(msgspec.json.encode(_reply(generation, text)))
        yield DONE

    async def _prompt(self, body: GenerateRequest) -> list[int]:
        if body.text is not None and body.input_ids is not None:
            raise RequestError("text and input_ids are both given; give one", param="input_ids")
        if body.input_ids is not None:
            return body.input_ids
        if body.text is None:
            raise RequestError("text is missing; give text or input_ids", param="text")
        return await self._generator.tokenizer.encode_aside(body.text)


def _text_of(deltas: Sequence[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])


def _reply(generation: Generation, text: str) -> GenerateReply:
    choice = generation.choices[0]
    meta = MetaInfo(
        id=generation.id,
        finish_reason=_finish_reason(choice),
        prompt_tokens=len(choice.request.prompt),
        completion_tokens=len(choice.text.token_ids),
        cached_tokens=choice.text.num_cached_tokens,
    )
    return GenerateReply(text=text, meta_info=meta)


def _finish_reason(choice: Choice) -> dict[str, Any] | None:
    reason = choice.text.finish_reason
    if reason is None:
        return None
    if reason == "length":
        return {"type": reason, "length": len(choice.text.token_ids)}
    return {"type": reason, "matched": choice.text.stopped_by}
