"""Generates text as SGLang's native API does, with its field names and replies. Does not depend on HTTP."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence

import msgspec

from llmfw.api.completions.service import MAX_TOGETHER
from llmfw.api.http.sse import DONE, comment_on, frame
from llmfw.api.schemas.native import GenerateReply, GenerateRequest
from llmfw.api.text.generation import Generation, Generator
from llmfw.api.text.prompt_values import check_prompt_values
from llmfw.api.text.terms import key_name, terms_of
from llmfw.api.text.text_stream import Delta
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningParser

from .logprobs import LogprobForm, check_start, num_prompt_top
from .prompt_maker import PromptMaker, counts_reasoning, scores_only, with_given_ids
from .prompts import Prompts, given_ids_of, ids_of, prompts_of, sampling_of
from .run import NativeGeneration
from .spacing import EventSpacing


class NativeService:
    """Answers requests to /generate.

    Args:
        generator: generator that runs the prompts.
        reasoning: parser of the model's reasoning, whose tokens are counted; None: they are not counted.

    Attributes:
        body_type: class of the route's bodies: GenerateRequest, or a subclass with the request fields of
            plugins.
    """

    def __init__(self, generator: Generator, reasoning: type[ReasoningParser] | None = None) -> None:
        self._generator = generator
        self.body_type = generator.fields.body_type(GenerateRequest, "/generate")
        self._reasoning = reasoning

    async def start(self, body: GenerateRequest) -> NativeGeneration:
        """Start the generation that answers a request.

        Raises:
            RequestError: a field is wrong; the error names it.
            EngineDeadError: the engine has died, so nothing can be generated.
        """
        started = time.monotonic()
        await self._generator.names.find(body.model, key_name.get())
        self._generator.check(body.model)
        prompts = await prompts_of(body, self._generator)
        given, terms = sampling_of(body, prompts), terms_of(body)
        n = given[0].n or 1
        _check_number(prompts, n)
        ids = ids_of(body, prompts, n)
        check_start(body, prompts.token_ids)
        named = given_ids_of(body, prompts, self._generator.info)
        if (top := num_prompt_top(body)) is not None:
            width = 1 + top + max(map(len, named), default=0)
            check_prompt_values(prompts.token_ids, width, n, "logprob_start_len")
        maker = PromptMaker(body, self._generator, terms, self._reasoning)

        generation = self._generator.start_prompts(
            "gen-",
            with_given_ids(await maker.make(prompts.token_ids, given), named),
            n=n,
            priority=body.priority or 0,
            terms=terms,
            max_tokens_param="max_new_tokens",
        )
        is_list = prompts.is_list or n > 1
        return NativeGeneration(
            generation,
            ids=ids or _own_ids(generation, is_list),
            n=n,
            is_list=is_list,
            unread=[scores_only(each) for each in given],
            counts_reasoning=[counts_reasoning(self._reasoning, each) for each in given],
            logprobs=self._logprob_form(body),
            started=started,
        )

    async def reply(self, running: NativeGeneration) -> GenerateReply | list[GenerateReply]:
        """Run a generation to its end; return the reply, or a list of replies if there are several choices."""
        deltas = await running.generation.finish()
        replies = [
            await running.reply(choice, _text_of(deltas[choice.index]))
            for choice in running.generation.choices
        ]
        return replies if running.is_list else replies[0]

    async def stream(self, running: NativeGeneration) -> AsyncGenerator[bytes, None]:
        """Run a generation and yield server-sent events, each with the whole output of one choice so far.

        A choice whose events have become large has fewer events (`EventSpacing`).

        If an engine event adds no text, yields a comment on the choice's wait, or b"" if the choice does not
        wait.
        """
        texts, spacing = [""] * len(running.generation.choices), EventSpacing()
        async with contextlib.aclosing(running.generation.events()) as events:
            async for choice, deltas in events:
                new = "" if running.is_unread(choice) else _text_of(deltas)
                texts[choice.index] += new
                if not new and choice.text.finish_reason is None:
                    yield comment_on(choice.wait)
                    continue
                data = b""
                for ready in running.ready(choice):
                    if not spacing.is_due(ready):
                        continue
                    reply = await running.reply(ready, texts[ready.index])
                    if running.is_list:
                        reply.index = ready.index
                    event = frame(msgspec.json.encode(reply))
                    spacing.count(ready, len(event))
                    data += event
                yield data
        yield DONE

    def _logprob_form(self, body: GenerateRequest) -> LogprobForm | None:
        if not body.return_logprob:
            return None
        return LogprobForm(body, self._generator.tokenizer, self._generator.slices)


def _own_ids(generation: Generation, is_list: bool) -> list[str]:
    return [choice.request.id for choice in generation.choices] if is_list else [generation.id]


def _check_number(prompts: Prompts, n: int) -> None:
    count = n * len(prompts.token_ids)
    if count > MAX_TOGETHER:
        raise RequestError(
            f"{len(prompts.token_ids)} prompts with {n} choices each are {count} together; at most {MAX_TOGETHER} are "
            "allowed: send several requests",
            param="n",
        )


def _text_of(deltas: Sequence[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, ContentDelta)])
