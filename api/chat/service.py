"""Chat completions: turns a request into a generation, and a generation into a reply or a stream of chunks.

Does not depend on HTTP, so that routes and batch jobs use it in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from msgspec import UNSET

from llmfw.api.http.sse import DONE, comment_on
from llmfw.api.media.vision import Vision
from llmfw.api.schemas.chat import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    FunctionCall,
    ToolCall,
)
from llmfw.api.schemas.common import Usage
from llmfw.api.text.aliases import MAX_TOKENS, THINKING_BUDGET, field_given
from llmfw.api.text.choice import Choice, MakeText
from llmfw.api.text.endings import ending_of
from llmfw.api.text.extras import extras_of, prompt_logprobs_of
from llmfw.api.text.generation import Generation, Generator
from llmfw.api.text.generation_prompt import Output
from llmfw.api.text.given_ids import given_ids, is_constrained
from llmfw.api.text.logprobs import whole_chat_logprobs
from llmfw.api.text.reply_extras import Extras
from llmfw.api.text.stops import Stops, stops_of
from llmfw.api.text.structured import structure_of
from llmfw.api.text.terms import key_name, terms_of
from llmfw.api.text.text_stream import Delta, TextStream
from llmfw.api.text.token_limits import with_limits
from llmfw.api.text.truncation import Truncation
from llmfw.api.text.usage import usage_of
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec, SamplingParams
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.parsers import (
    ContentDelta,
    ReasoningDelta,
    ReasoningParser,
    ToolCallDelta,
    ToolParser,
)

from .answer_form import AnswerForm, answer_form
from .chunks import ChatChunks, new_call_id
from .prompt import echo_of
from .prompt_maker import ChatPrompts
from .reasoning import text_class
from .thinking import is_thinking, thinking_of
from .tool_choice import tool_use

REASONING_FIELDS = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}
"""Value of `--reasoning-field` → the fields of a message that contain the reasoning."""

MAX_MESSAGES = 10_000


class ChatService:
    """Answers chat completion requests.

    Args:
        generator: generator that runs the prompts.
        template: template that renders messages as a prompt.
        reasoning_parser, tool_parser: parser classes that fit the model, or None.
        json_tool_parser: parser of calls in the format of a bare JSON array. It is used for required calls if
            no grammar can describe the model's own format.
        fingerprint: returns the server's current system fingerprint.
        reasoning_field: a key of REASONING_FIELDS.
        max_messages: maximum number of messages of a chat, and of parts of one message.
        vision: reads images; None: the model reads text only.

    Attributes:
        fields: active request fields of plugins.
        body_type: class of the route's bodies: ChatRequest, or a subclass with the request fields of plugins.
    """

    def __init__(
        self,
        generator: Generator,
        template: ChatTemplate,
        *,
        reasoning_parser: type[ReasoningParser] | None = None,
        tool_parser: type[ToolParser] | None = None,
        json_tool_parser: type[ToolParser] | None = None,
        fingerprint: Callable[[], str],
        reasoning_field: str = "reasoning_content",
        max_messages: int = MAX_MESSAGES,
        vision: Vision | None = None,
    ) -> None:
        self._generator = generator
        self.fields = generator.fields
        self.body_type = self.fields.body_type(ChatRequest, "/v1/chat/completions")
        self._template = template
        self._prompts = ChatPrompts(generator, template, max_messages, vision)
        self._reasoning_parser = reasoning_parser
        self._tool_parser = tool_parser
        self._json_tool_parser = json_tool_parser
        self._fingerprint = fingerprint
        self._reasoning_fields = REASONING_FIELDS[reasoning_field] if reasoning_parser else ()

    async def start(self, body: ChatRequest) -> Generation:
        """Return the generation that answers a request.

        Raises:
            RequestError: a field is wrong; names the field.
            EngineDeadError: the engine has died.
        """
        await self._generator.names.find(body.model, key_name.get())
        self._generator.check(body.model)
        param, max_tokens = field_given(body, MAX_TOKENS)
        sampling = self._generator.sampling(body, max_tokens, {"max_tokens": param})
        sampling = with_limits(sampling, body, self._generator.tokenizer)
        extras = extras_of(body, echo_of(body))
        form = self._form(body)
        stops = await stops_of(
            body, sampling.stop, self._generator.tokenizer.eos_token_ids, self._generator.threads
        )
        if form.use.must_call and stops.patterns:
            raise RequestError(
                "stop_regex ends texts, and tool_choice asks for calls alone; leave one of them out",
                param="stop_regex",
            )
        truncation = Truncation(body.truncate_prompt_tokens, self._generator, max_tokens)
        terms, grammar = terms_of(body), None
        prompt = await self._prompts.make(body, form.tools, truncation, terms.tenant)
        for check in form.checks:  # the last one checks the form's whole grammar
            grammar = await self._generator.check_grammar(check.spec, check.param, terms.tenant)
        output = self._output(body, form, prompt.text, grammar)
        generation = self._generator.start(
            "chatcmpl-",
            [prompt.tokens],
            sampling,
            self._make_text(body, sampling, form, prompt.text, stops),
            n=body.n or 1,
            priority=body.priority or 0,
            terms=terms,
            output=output,
            max_tokens_param=param,
            media=[prompt.media],
        )
        generation.extras = extras
        return generation

    @property
    def max_running(self) -> int:
        """Number of sequences that the engine runs at once."""
        return self._generator.info.max_running_requests

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images."""
        return self._prompts.reads_images

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template."""
        return bool(self._template.source)

    async def render(self, body: ChatRequest) -> str:
        """Return the text of the prompt that `start` would render for a request.

        Raises:
            RequestError: a field is wrong; names the field.
        """
        return await self._prompts.text(body, self._form(body).tools, self._generator.texts)

    async def tokens(self, body: ChatRequest, tenant: str = "") -> list[int]:
        """Return the prompt that `start` would make for a request, with its images.

        Args:
            tenant: tenant of the request, whose images are decoded.

        Raises:
            RequestError: a field is wrong; names the field.
        """
        truncation = Truncation(None, self._generator, None)
        return (await self._prompts.make(body, self._form(body).tools, truncation, tenant)).tokens

    async def reply(self, generation: Generation) -> ChatCompletion:
        """Run a generation to its end and return the whole reply."""
        deltas = await generation.finish()
        extras, first = generation.extras, generation.choices[0]
        choices = [await self._choice(choice, deltas[choice.index], extras) for choice in generation.choices]
        reply = ChatCompletion(
            id=generation.id,
            created=generation.created,
            model=generation.model,
            choices=choices,
            usage=self._usage(generation),
            system_fingerprint=self._generator.fingerprint(self._fingerprint(), generation),
        )
        if extras.token_ids:
            reply.prompt_token_ids = first.request.prompt
        if extras.prompt_logprobs is not None:
            tokenizer = self._generator.tokenizer
            slices = self._generator.slices
            reply.prompt_logprobs = await prompt_logprobs_of(first, extras.prompt_logprobs, tokenizer, slices)
        return reply

    async def stream(self, generation: Generation, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events (see `Generation.events` for the first one)."""
        chunks: ChatChunks | None = None
        roles = b""
        async with contextlib.aclosing(generation.events()) as events:
            async for choice, deltas in events:
                if choice.wait is not None:
                    yield comment_on(choice.wait)
                    continue
                if chunks is None:  # not earlier: a request may wait until other weights are loaded
                    chunks = self._chunks(generation, include_usage)
                    roles = chunks.roles()
                data, roles = roles, b""
                for delta in deltas:
                    data += chunks.delta(choice, delta)
                if choice.text.finish_reason is not None:
                    data += chunks.finish(choice)
                if data:
                    yield data
        assert chunks is not None, "the generation ended without an event"
        yield (chunks.usage(self._usage(generation)) if include_usage else b"") + DONE

    def _chunks(self, generation: Generation, include_usage: bool) -> ChatChunks:
        """Return the encoder of a stream's chunks, with the fingerprint of the current weights."""
        return ChatChunks(
            generation,
            generation.model,
            self._generator.fingerprint(self._fingerprint(), generation),
            include_usage,
            self._reasoning_fields,
            self._usage,
        )

    def _usage(self, generation: Generation) -> Usage:
        """Return the token counts. If there is a reasoning parser, add `reasoning_tokens` as SGLang does."""
        usage = usage_of(generation)
        if self._reasoning_parser is not None:
            usage.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens
        return usage

    async def _choice(self, choice: Choice, deltas: Sequence[Delta], extras: Extras) -> ChatChoice:
        """Return a finished choice in the form of the reply."""
        ending = ending_of(choice)
        return ChatChoice(
            index=choice.index,
            message=_message(deltas, self._reasoning_fields, extras.echo),
            logprobs=await whole_chat_logprobs(deltas, self._generator.slices, names_ids=extras.names_ids),
            finish_reason=choice.text.finish_reason or "stop",
            matched_stop=ending.matched_stop,
            stop_reason=ending.stop_reason,
            token_ids=choice.text.token_ids if extras.token_ids else UNSET,
        )

    def _form(self, body: ChatRequest) -> AnswerForm:
        """Return the form of the answer: its tools, and the grammar that the engine enforces."""
        use = tool_use(body.tools, body.tool_choice, body.parallel_tool_calls)
        messages = self._reasoning_parser.messages if self._reasoning_parser else None
        return answer_form(use, structure_of(body), self._tool_parser, self._json_tool_parser, messages)

    def _output(
        self, body: ChatRequest, form: AnswerForm, prompt: str, grammar: GrammarSpec | None
    ) -> Output:
        """Return the settings of the answer other than its sampling parameters."""
        budget_param, budget = field_given(body, THINKING_BUDGET)
        thinking = thinking_of(
            self._reasoning_parser,
            self._generator.tokenizer,
            prompt,
            budget=budget,
            budget_param=budget_param,
            grammar_param=form.checks[0].param if form.checks else None,
            may_call=form.tool_parser is not None,
        )
        num_top = _num_logprobs(body)
        given = given_ids(body.logprob_token_ids, self._generator.info, has_logprobs=num_top is not None)
        return Output(
            logprobs=0 if given else num_top,
            logprob_token_ids=given,
            prompt_logprobs=extras_of(body).prompt_logprobs,
            constrained_logprobs=is_constrained(body.constrained_logprobs, has_logprobs=num_top is not None),
            grammar=grammar,
            thinking=thinking,
        )

    def _make_text(
        self, body: ChatRequest, sampling: SamplingParams, form: AnswerForm, prompt_text: str, stops: Stops
    ) -> MakeText:
        reasoning = self._reasoning_parser if body.separate_reasoning is not False else None
        make = text_class(body, reasoning)
        tool_parser = form.tool_parser
        in_reasoning = is_thinking(reasoning, prompt_text)
        reads_special = any(parser and parser.needs_special_tokens for parser in (reasoning, tool_parser))
        tokenizer = self._generator.tokenizer

        def make_text(prompt: Sequence[int]) -> TextStream:
            # Unless it continues a message, an answer is decoded without the prompt, to get no leading space.
            return make(
                tokenizer.detokenizer(
                    prompt if body.continue_final_message else (),
                    skip_special_tokens=body.skip_special_tokens is not False and not reads_special,
                ),
                # Required calls are not content, and a stop string inside one would break it.
                stop=() if form.use.must_call else sampling.stop,
                stops=stops,
                min_tokens=sampling.min_tokens,
                reasoning=reasoning(in_reasoning=in_reasoning) if reasoning else None,
                tools=tool_parser(form.use.callable) if tool_parser else None,
                one_call=form.use.one_call,
                # As with OpenAI, a call of a named tool ends with "stop", because it was expected.
                call_reason="stop" if form.use.mode == "named" else "tool_calls",
                token_bytes=tokenizer.token_bytes if body.logprobs else None,
            )

        return make_text


def _num_logprobs(body: ChatRequest) -> int | None:
    """Return the number of most likely tokens to report at each position; None: no log probabilities."""
    if body.top_logprobs and not body.logprobs:
        raise RequestError(
            f"top_logprobs is {body.top_logprobs}; it needs logprobs to be true", param="top_logprobs"
        )
    return (body.top_logprobs or 0) if body.logprobs else None


def _message(deltas: Sequence[Delta], reasoning_fields: Sequence[str], echo: str = "") -> ChatMessage:
    """Return the message of a choice: the text to echo, followed by the joined deltas."""
    content = echo + "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    calls: dict[int, ToolCall] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, ToolCall(new_call_id(), FunctionCall("", delta.name or "")))
            call.function.arguments += delta.arguments  # type: ignore[operator]
    message = ChatMessage(content=None if calls and not content else content)
    for name in reasoning_fields:
        setattr(message, name, reasoning or None)
    if calls:
        message.tool_calls = list(calls.values())
    return message
