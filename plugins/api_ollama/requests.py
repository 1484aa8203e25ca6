"""Converts Ollama's requests to OpenAI's: chooses the route that answers a request, and builds its body."""

from __future__ import annotations

from typing import Any, NamedTuple

from llmfw.core import RequestError, ServedModel

from .bodies import AnswerBody, ChatBody, GenerateBody
from .messages import chat_messages, continues, refuse_images
from .options import NAMES, sampling_of

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
LEVELS = ("low", "medium", "high", "max")

_NAMES = {
    **NAMES,
    "response_format.json_schema.schema": "format",
    "response_format": "format",
    "reasoning_effort": "think",
}


class Inner(NamedTuple):
    """A request in OpenAI's form.

    Attributes:
        path: path of the route that answers the request.
        ignored: names of the fields of Ollama's request that have no effect.
        names: OpenAI's field → Ollama's field, if they differ.
    """

    path: str
    body: dict[str, Any]
    ignored: list[str]
    names: dict[str, str]


def inner_chat(body: ChatBody, name: str, model: ServedModel) -> Inner:
    """Convert a request of /api/chat that has messages.

    Args:
        name: name of the model, or of its adapter.

    Raises:
        RequestError: a field is wrong or not supported; the message names the field.
    """
    ignored: list[str] = []
    given = body.messages or []
    fields = _common(body, name, ignored) | _thinking(body, model, ignored) | _logprobs(body, ignored)
    fields["messages"] = chat_messages(given)
    if continues(given):
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    if body.tools:
        fields["tools"] = body.tools
    return Inner(CHAT, fields, ignored, _NAMES)


def inner_generate(body: GenerateBody, name: str, model: ServedModel) -> Inner:
    """Convert a request of /api/generate that has a prompt or a suffix.

    Args:
        name: name of the model, or of its adapter.

    Raises:
        RequestError: a field is wrong or not supported; the message names the field.
    """
    ignored: list[str] = []
    refuse_images(body.images, "images")
    if body.context:
        _refuse("context", f"{len(body.context)} tokens", "send the conversation as messages to /api/chat")
    if body.raw or body.suffix:
        return _completion(body, name, ignored)
    fields = _common(body, name, ignored) | _thinking(body, model, ignored) | _logprobs(body, ignored)
    system = [{"role": "system", "content": body.system}] if body.system else []
    fields["messages"] = [*system, {"role": "user", "content": body.prompt}]
    return Inner(CHAT, fields, ignored, {**_NAMES, f"messages[{len(system)}]": "prompt"})


def _completion(body: GenerateBody, name: str, ignored: list[str]) -> Inner:
    """Convert a request whose prompt is not rendered by a chat template."""
    mode = "raw" if body.raw else "suffix"
    if body.system:
        _refuse(
            "system", repr(body.system[:100]), f"a request with {mode} has no system message: leave it out"
        )
    if body.raw and body.suffix:
        _refuse("suffix", repr(body.suffix[:100]), "a raw prompt has no suffix: give raw or suffix")
    if body.logprobs:
        _refuse("logprobs", "true", f"a request with {mode} has none here: /v1/completions has them")
    if body.top_logprobs:
        ignored.append("top_logprobs")
    if body.think is not None:
        ignored.append("think")
    fields = _common(body, name, ignored)
    fields["prompt"] = body.prompt
    if body.suffix:
        fields["suffix"] = body.suffix
    return Inner(COMPLETION, fields, ignored, _NAMES)


def ollama_error(error: RequestError, names: dict[str, str]) -> RequestError:
    """Return an error with OpenAI's field renamed to Ollama's."""
    for name, theirs in names.items():
        if error.param and error.param.startswith(name):
            param = theirs + error.param.removeprefix(name)
            return RequestError(str(error).replace(error.param, param), param=param, code=error.code)
    return error


def _common(body: AnswerBody, name: str, ignored: list[str]) -> dict[str, Any]:
    if body.template:
        _refuse("template", repr(body.template[:100]), "the server's template is chosen by --chat-template")
    if body.render_only:
        _refuse("_debug_render_only", "true", "this server shows no rendered prompt: leave it out")
    if body.keep_alive is not None:
        ignored.append("keep_alive")  # the model stays loaded
    fields = {"model": name} | sampling_of(body.options, ignored)
    if isinstance(body.format, dict):
        schema = {"name": "output", "schema": body.format, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif body.format == "json":
        fields["response_format"] = {"type": "json_object"}
    elif body.format:
        _refuse("format", repr(body.format[:100]), 'it must be "json" or a JSON schema')
    return fields


def _thinking(body: AnswerBody, model: ServedModel, ignored: list[str]) -> dict[str, Any]:
    """Return the fields that turn thinking on or off.

    As in Ollama, models that can think do so by default.
    """
    think = body.think
    if isinstance(think, str) and think not in LEVELS:
        _refuse("think", repr(think[:100]), f"it must be true, false or one of {', '.join(LEVELS)}")
    if "thinking" not in model.capabilities:
        if think:
            _refuse("think", repr(think), f"{model.name!r} does not support thinking: leave it out")
        return {}
    if isinstance(think, str):
        return {"reasoning_effort": think}
    return {"chat_template_kwargs": {"enable_thinking": think is not False}}


def _logprobs(body: AnswerBody, ignored: list[str]) -> dict[str, Any]:
    if not body.logprobs:
        if body.top_logprobs:
            ignored.append("top_logprobs")
        return {}
    return {"logprobs": True, "top_logprobs": body.top_logprobs}


def _refuse(name: str, value: str, advice: str) -> None:
    raise RequestError(f"{name} is {value}; {advice}", param=name, code="unsupported_parameter")
