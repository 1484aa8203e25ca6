"""Renders a model's own chat template as transformers does: in a sandbox, with its filters and globals.

Messages are converted to the form that templates expect: nulls are dropped, content becomes text or a list of
parts, whichever the template reads (`content_form`), and the arguments of tool calls are parsed from JSON.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError

from llmfw.core import ChatTemplate, ConfigError, Message, RequestError
from llmfw.core.base.described import described

from .content_form import content_forms
from .meter import LimitError, Limits, NotBriefError
from .renderer import Renderer

_PROBE = {"role": "user", "content": "Hi"}
_MAX_CAUSE = 1000
_RESERVED = frozenset({"chat_template", "conversations", "messages", "return_assistant_tokens_mask"})


class JinjaChatTemplate(ChatTemplate):
    """A Jinja chat template, as in a tokenizer's `chat_template`.

    Raises:
        ConfigError: from the constructor: the template has a syntax error, or exceeds a limit even on a short
            chat.
    """

    conformance: ClassVar[Mapping[str, bool]] = {
        "has_tools": True,
        "has_generation_prompt": True,
        "renders_jinja": True,
    }
    limits: ClassVar[Limits] = Limits()

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        super().__init__(source, special_tokens)
        self._reads_text, self._reads_parts = True, False
        self._local = threading.local()  # whether the thread's current rendering must be brief
        try:
            self._renderer = Renderer(source, self.limits)
            self._reads_text, self._reads_parts = content_forms(source)
            for messages in ([], [_PROBE]):
                self._try(messages)
        except TemplateSyntaxError as error:
            raise ConfigError(
                f"the chat template has a syntax error in line {error.lineno}: {error}"
            ) from error
        except LimitError as error:
            raise ConfigError(f"the chat template {error}; correct it, or choose another one") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        if not self.source:
            raise RequestError(
                "this model has no chat template: send text (prompt of /v1/completions, input of /v1/embeddings), "
                "or start the server with --chat-template",
                param="messages",
            )
        if not messages:
            raise RequestError("messages is empty; it must have at least one message", param="messages")
        if refused := sorted(_RESERVED & kwargs.keys()):
            raise RequestError(
                f"a request cannot set {refused[0]!r}; leave it out",
                param=f"chat_template_kwargs.{refused[0]}",
            )
        if add_generation_prompt and kwargs.get("continue_final_message"):
            raise RequestError(
                "continue_final_message continues the last message; add_generation_prompt must then be false",
                param="chat_template_kwargs.continue_final_message",
            )
        return self._render(messages, tools, add_generation_prompt=add_generation_prompt, **kwargs)

    def render_briefly(self, messages: Sequence[Message], **kwargs: Any) -> str | None:
        self._local.brief = True
        try:
            return self.render(messages, **kwargs)
        except NotBriefError:
            return None
        finally:
            self._local.brief = False

    def _try(self, messages: Sequence[Message]) -> None:
        """Render messages only to check limits.

        Ignores other errors: many templates refuse an empty conversation.
        """
        try:
            self._run(messages, (), add_generation_prompt=True)
        except LimitError:
            raise
        except Exception:  # noqa: BLE001 (the template compiled, which is all that matters here)
            return

    def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        """Return the prompt; turn any error of the template into a RequestError."""
        try:
            text = self._run(messages, tools, **kwargs)
        except NotBriefError:
            raise
        except LimitError as error:
            raise RequestError(
                f"the chat template {error}: send fewer or shorter messages, tools or chat_template_kwargs",
                param="messages",
                code="chat_template_limit",
            ) from error
        except TemplateError as error:
            raise RequestError(
                f"the chat template: {_shown(error.message or error)}", param="messages"
            ) from error
        except Exception as error:
            cause = _shown(described(error))
            raise RequestError(
                f"the chat template cannot render these messages: {cause}", param="messages"
            ) from error
        return text

    def _run(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        return self._renderer.render(
            [self._as_expected(message) for message in messages],
            tools,
            {**self.special_tokens, **kwargs},
            brief=getattr(self._local, "brief", False),
        )

    def _as_expected(self, message: Message) -> dict[str, Any]:
        """Return a message without nulls, with parsed arguments, and content that the template can read."""
        found = {key: value for key, value in message.items() if value is not None}
        content = found.get("content")
        if isinstance(content, str) and not self._reads_text:
            found["content"] = [{"type": "text", "text": content}]
        elif isinstance(content, list) and not self._reads_parts and all(map(_is_text, content)):
            found["content"] = "\n".join(part["text"] for part in content)
        if isinstance(calls := found.get("tool_calls"), list):
            found["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
        return found


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _shown(cause: object) -> str:
    """Return an error's text, shortened, with lone surrogates escaped."""
    return str(cause)[:_MAX_CAUSE].encode("utf-8", "backslashreplace").decode()


def _with_parsed_arguments(call: Any) -> Any:
    """Return a tool call with its `function.arguments` parsed.

    Leaves arguments as text if they are not a JSON object, or have NaN, infinity or lone surrogates.
    """
    function = call.get("function") if isinstance(call, Mapping) else None
    if not (isinstance(function, Mapping) and isinstance(function.get("arguments"), str)):
        return call
    try:
        arguments = json.loads(function["arguments"], parse_constant=_no_number, parse_float=_finite)
        if "\\u" in function["arguments"]:  # fails for lone surrogates
            json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number, or is one that Python does not have")
