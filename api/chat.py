"""Chat completions: a body becomes a generation, a generation becomes a reply or a stream of chunks.

Knows the OpenAI form of both, nothing of HTTP: a batch job uses it as a route does.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from llmfw.core.chat_template import ChatTemplate
from llmfw.core.errors import RequestError
from llmfw.core.parsers import ContentDelta, ReasoningDelta, ReasoningParser, ToolCallDelta, ToolParser
from llmfw.core.request import SamplingParams

from .chat_chunks import ChatChunks, new_call_id
from .generation import Generation, Generator, MakeText
from .messages import check_messages, check_tools
from .sampling import to_sampling
from .schemas.chat import ChatChoice, ChatCompletion, ChatMessage, ChatRequest, FunctionCall, ToolCall
from .sse import DONE
from .text_stream import Delta, TextStream
from .usage import usage_of

_TEMPLATE_ARGUMENTS = frozenset({"self", "messages", "tools", "add_generation_prompt"})


class ChatService:
    """Answers chats.

    Args:
        generator: runs the prompts.
        template: messages → prompt.
        reasoning_parser, tool_parser: classes that fit the model, or None.
        fingerprint: of model, engine and versions.
    """

    def __init__(
        self,
        generator: Generator,
        template: ChatTemplate,
        *,
        reasoning_parser: type[ReasoningParser] | None = None,
        tool_parser: type[ToolParser] | None = None,
        fingerprint: str,
    ) -> None:
        self._generator = generator
        self._template = template
        self._reasoning_parser = reasoning_parser
        self._tool_parser = tool_parser
        self._fingerprint = fingerprint

    async def start(self, body: ChatRequest) -> Generation:
        """Return the generation that answers a body.

        Raises:
            RequestError: names the field that is wrong.
            EngineDeadError: nothing can be generated any more.
        """
        self._generator.check(body.model)
        max_tokens, param = _max_tokens(body)
        sampling = to_sampling(body, max_tokens, {"max_tokens": param})
        tools = self._tools(body)
        prompt_text = self._render(body, tools)
        prompt = await self._generator.encode(prompt_text, add_special_tokens=False)
        return self._generator.start(
            "chatcmpl-",
            [prompt],
            sampling,
            self._make_text(body, sampling, tools, prompt_text),
            n=body.n or 1,
            priority=body.priority or 0,
            max_tokens_param=param,
        )

    async def reply(self, generation: Generation) -> ChatCompletion:
        """Run a generation to its end and return the whole reply."""
        deltas = await generation.finish()
        choices = [
            ChatChoice(
                index=choice.index,
                message=_message(deltas[choice.index]),
                finish_reason=choice.text.finish_reason or "stop",
            )
            for choice in generation.choices
        ]
        return ChatCompletion(
            id=generation.id,
            created=generation.created,
            model=self._generator.served_name,
            choices=choices,
            usage=usage_of(generation),
            system_fingerprint=self._fingerprint,
        )

    async def stream(self, generation: Generation, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events."""
        chunks = ChatChunks(generation, self._generator.served_name, self._fingerprint, include_usage)
        yield b"".join(chunks.role(choice.index) for choice in generation.choices)
        async with contextlib.aclosing(generation.events()) as events:
            async for choice, deltas in events:
                data = b"".join([chunks.delta(choice.index, delta) for delta in deltas])
                if choice.text.finish_reason is not None:
                    data += chunks.finish(choice.index, choice.text.finish_reason)
                if data:
                    yield data
        yield (chunks.usage(usage_of(generation)) if include_usage else b"") + DONE

    def _tools(self, body: ChatRequest) -> Sequence[Mapping[str, Any]]:
        """Return the tools that the model may call."""
        choice = body.tool_choice
        if choice not in (None, "auto", "none"):
            raise RequestError(
                f"tool_choice is {choice!r}; this server supports 'auto' and 'none'",
                param="tool_choice",
                code="unsupported_parameter",
            )
        if not body.tools:
            return ()
        check_tools(body.tools)
        if choice == "none":
            return ()
        if self._tool_parser is None:
            raise RequestError(
                "tools need a tool parser, and this model has none: start the server with --tool-parser",
                param="tools",
                code="unsupported_parameter",
            )
        return body.tools

    def _render(self, body: ChatRequest, tools: Sequence[Mapping[str, Any]]) -> str:
        messages = check_messages(body.messages, self._template.source)
        kwargs = dict(body.chat_template_kwargs or {})
        if wrong := sorted(_TEMPLATE_ARGUMENTS & kwargs.keys()):
            raise RequestError(
                f"chat_template_kwargs.{wrong[0]} cannot be set by a request",
                param=f"chat_template_kwargs.{wrong[0]}",
            )
        if body.reasoning_effort is not None:
            kwargs.setdefault("enable_thinking", body.reasoning_effort != "none")
            kwargs.setdefault("reasoning_effort", body.reasoning_effort)
        return self._template.render(messages, tools=tools, **kwargs)

    def _make_text(
        self,
        body: ChatRequest,
        sampling: SamplingParams,
        tools: Sequence[Mapping[str, Any]],
        prompt_text: str,
    ) -> MakeText:
        reasoning = self._reasoning_parser if body.separate_reasoning is not False else None
        tool_parser = self._tool_parser if tools else None
        opening = reasoning.opening if reasoning else None
        in_reasoning = opening is not None and prompt_text.rstrip().endswith(opening)

        def make_text(prompt: Sequence[int]) -> TextStream:
            # An answer is a text of its own: what precedes it does not decide on its first space.
            return TextStream(
                self._generator.tokenizer.detokenizer(
                    skip_special_tokens=body.skip_special_tokens is not False
                ),
                stop=sampling.stop,
                min_tokens=sampling.min_tokens,
                reasoning=reasoning(in_reasoning=in_reasoning) if reasoning else None,
                tools=tool_parser(tools) if tool_parser else None,
                one_call=body.parallel_tool_calls is False,
            )

        return make_text


def _max_tokens(body: ChatRequest) -> tuple[int | None, str]:
    """Return the limit and the name under which the client gave it."""
    new, old = body.max_completion_tokens, body.max_tokens
    if new is not None and old is not None and new != old:
        raise RequestError(
            f"max_completion_tokens is {new} and max_tokens is {old}; they mean the same: give one",
            param="max_tokens",
        )
    return (old, "max_tokens") if new is None else (new, "max_completion_tokens")


def _message(deltas: Sequence[Delta]) -> ChatMessage:
    """Put the deltas of a choice together."""
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    calls: dict[int, ToolCall] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, ToolCall(new_call_id(), FunctionCall("", delta.name or "")))
            call.function.arguments += delta.arguments  # type: ignore[operator]
    message = ChatMessage(content=None if calls and not content else content)
    if reasoning:
        message.reasoning_content = reasoning
    if calls:
        message.tool_calls = list(calls.values())
    return message
