"""Renders the prompt of a chat request with the chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmfw.api.schemas.chat import ChatRequest
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.chat_template import ChatTemplate

from .messages import check_messages
from .roles import role_probe

MAX_KWARGS = 1000
"""Maximum number of entries of chat_template_kwargs; the template library copies and checks each of them."""

_RESERVED = frozenset({"self", "messages", "tools", "add_generation_prompt", "continue_final_message"})


def render_prompt(
    body: ChatRequest, template: ChatTemplate, tools: Sequence[Mapping[str, Any]], images: bool = False
) -> str:
    """Render the prompt of a chat request.

    Args:
        tools: tools to pass to the template.
        images: as in `check_messages`.

    Raises:
        RequestError: a message or a field for the template is invalid, the template refuses the conversation,
            or the template omits a message.
    """
    messages, kwargs = _given(body, template, images)
    text = template.render(messages, tools=tools, **kwargs)  # before the probe, for the template's own errors
    if (probe := role_probe(messages, template.source)) is not None:
        probe.check(template.render(probe.messages, tools=tools, **kwargs))
    return text


def render_prompt_briefly(
    body: ChatRequest, template: ChatTemplate, tools: Sequence[Mapping[str, Any]], images: bool = False
) -> str | None:
    """Render the prompt like `render_prompt`, or return None if that takes too long for the event loop."""
    messages, kwargs = _given(body, template, images)
    text = template.render_briefly(messages, tools=tools, **kwargs)
    if text is not None and (probe := role_probe(messages, template.source)) is not None:
        probed = template.render_briefly(probe.messages, tools=tools, **kwargs)
        if probed is None:
            return None
        probe.check(probed)
    return text


def echo_of(body: ChatRequest) -> str:
    """Return the text that the reply repeats before the answer.

    This is the text of the last message if `echo` is set and the message is the assistant's; otherwise "".
    """
    if not body.echo or not body.messages or body.messages[-1].get("role") != "assistant":
        return ""
    content = body.messages[-1].get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _given(
    body: ChatRequest, template: ChatTemplate, images: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the input of the template: the request's messages, and the other variables by name."""
    messages = check_messages(body.messages, template.source, images=images)
    kwargs = dict(body.chat_template_kwargs or {})
    if len(kwargs) > MAX_KWARGS:
        raise RequestError(
            f"chat_template_kwargs has {len(kwargs)} entries; at most {MAX_KWARGS} are allowed",
            param="chat_template_kwargs",
        )
    if wrong := sorted(_RESERVED & kwargs.keys()):
        raise RequestError(
            f"chat_template_kwargs.{wrong[0]} cannot be set by a request; leave it out",
            param=f"chat_template_kwargs.{wrong[0]}",
        )
    if body.enable_thinking is not None:
        _enable_thinking(body.enable_thinking, kwargs, template.source)
    if body.reasoning_effort is not None:
        kwargs.setdefault("enable_thinking", body.reasoning_effort != "none")
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    if body.continue_final_message:
        _check_continued(body, messages[-1])
        return messages, {**kwargs, "add_generation_prompt": False, "continue_final_message": True}
    return messages, {**kwargs, "add_generation_prompt": body.add_generation_prompt is not False}


def _enable_thinking(value: bool, kwargs: dict[str, Any], source: str) -> None:
    """Add `enable_thinking` to the template's variables.

    Raises:
        RequestError: the template does not read it, or chat_template_kwargs sets it to another value.
    """
    shown = "true" if value else "false"
    if "enable_thinking" not in source:
        raise RequestError(
            f"enable_thinking is {shown}, and this model's chat template does not read it; leave it out",
            param="enable_thinking",
            code="unsupported_parameter",
        )
    if kwargs.setdefault("enable_thinking", value) is not value:
        raise RequestError(
            f"enable_thinking is {shown}, and chat_template_kwargs.enable_thinking is "
            f"{kwargs['enable_thinking']!r:.100}; they mean the same: give one",
            param="enable_thinking",
        )


def _check_continued(body: ChatRequest, last: Mapping[str, Any]) -> None:
    """Raise RequestError unless the last message can be continued."""
    if body.add_generation_prompt:
        raise RequestError(
            "continue_final_message continues the last message, and add_generation_prompt starts a new one; "
            "set one of them to false",
            param="continue_final_message",
        )
    param = f"messages[{len(body.messages) - 1}]"
    if last["role"] != "assistant":
        raise RequestError(
            f"{param}.role is {last['role']!r}; continue_final_message continues a message of the assistant",
            param=f"{param}.role",
        )
    if not last.get("content"):
        raise RequestError(
            f"{param}.content is empty; continue_final_message needs a text to continue",
            param=f"{param}.content",
        )
