"""Converts Anthropic's request to a chat request. Fields that have no effect are reported by path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.api.schemas.anthropic import CountTokensRequest, MessagesRequest
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.request_fields import given_fields, like
from llmfw.core.base.errors import RequestError

from .conversation import conversation_of
from .fields import Fields

EFFORTS = ("low", "medium", "high", "xhigh", "max")

_NAMES = {
    "stop": "stop_sequences",
    "thinking_budget": "thinking.budget_tokens",
    "response_format.json_schema.schema": "output_config.format.schema",
}
"""Field of a chat request → field of Anthropic's request, if their names differ."""


def to_chat(body: CountTokensRequest, *, images: bool = False) -> tuple[ChatRequest, list[str]]:
    """Convert Anthropic's request; return the chat request, and the paths of fields without effect.

    Args:
        images: whether the model reads images.

    Raises:
        RequestError: a field is wrong; names the field.
    """
    ignored: set[str] = set()
    values: dict[str, Any] = {
        "model": body.model,
        "messages": conversation_of(body.system, body.messages, ignored, images=images),
    }
    if values["messages"][-1]["role"] == "assistant":
        values |= {"continue_final_message": True, "add_generation_prompt": False}
    if body.tools:
        values["tools"] = [_tool(tool, f"tools[{i}]", ignored) for i, tool in enumerate(body.tools)]
    if body.tool_choice is not None:
        values |= _tool_choice(Fields(body.tool_choice, "tool_choice", ignored))
    if body.thinking is not None:
        values |= _thinking(Fields(body.thinking, "thinking", ignored))
    if body.output_config is not None:
        values |= _output_config(Fields(body.output_config, "output_config", ignored), ignored)
    if isinstance(body, MessagesRequest):
        values |= _sampling(body)
        if body.metadata is not None:
            metadata = Fields(body.metadata, "metadata", ignored)
            values["user"] = metadata.get("user_id", str, "a string")
            metadata.close()
    return like(ChatRequest, body)(**values, **given_fields(body)), sorted(ignored)


def renamed(error: RequestError) -> RequestError:
    """Return a chat error that names the field of Anthropic's request instead of the chat request's field."""
    for name, theirs in _NAMES.items():
        if error.param and error.param.startswith(name):
            param = theirs + error.param.removeprefix(name)
            return RequestError(str(error).replace(error.param, param), param=param, code=error.code)
    return error


def _sampling(body: MessagesRequest) -> dict[str, Any]:
    for i, text in enumerate(body.stop_sequences or ()):
        if not text:
            param = f"stop_sequences[{i}]"
            raise RequestError(f"{param} is empty; it must be a string that is not", param=param)
    return {
        "max_tokens": body.max_tokens,
        "stream": body.stream,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
    }


def _tool(value: Any, param: str, ignored: set[str]) -> dict[str, Any]:
    tool = Fields(value, param, ignored)
    kind = tool.raw("type")
    if kind not in (None, "custom"):
        tool.refuse("type", kind, "'custom' or absent: this server has no tools of its own")
    name = tool.take("name", str, "the tool's name")
    if not name:
        tool.refuse("name", name, "a name that is not empty")
    function: dict[str, Any] = {"name": name}
    if (description := tool.get("description", str, "a string")) is not None:
        function["description"] = description
    function["parameters"] = tool.take("input_schema", dict, "a JSON schema")
    if (strict := tool.get("strict", bool, "true or false")) is not None:
        function["strict"] = strict
    tool.close()
    return {"type": "function", "function": function}


def _tool_choice(choice: Fields) -> dict[str, Any]:
    kind = choice.raw("type")
    _check_one_of(choice, "type", kind, ("auto", "any", "tool", "none"))
    values: dict[str, Any] = {"tool_choice": "required" if kind == "any" else kind}
    if kind == "tool":
        function = {"name": choice.take("name", str, "the tool's name")}
        values["tool_choice"] = {"type": "function", "function": function}
    if choice.get("disable_parallel_tool_use", bool, "true or false"):
        values["parallel_tool_calls"] = False
    choice.close()
    return values


def _thinking(thinking: Fields) -> dict[str, Any]:
    kind = thinking.raw("type")
    _check_one_of(thinking, "type", kind, ("enabled", "adaptive", "disabled"))
    values: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": kind != "disabled"}}
    if kind == "enabled":
        budget = thinking.take("budget_tokens", int, "a number of tokens")
        if not 1 <= budget < 2**31:
            thinking.refuse("budget_tokens", budget, f"from 1 to {2**31 - 1}")
        values["thinking_budget"] = budget
    thinking.close()
    return values


def _output_config(config: Fields, ignored: set[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if (effort := config.get("effort", str, f"one of {', '.join(EFFORTS)}")) is not None:
        _check_one_of(config, "effort", effort, EFFORTS)
        values["reasoning_effort"] = effort
    if (form := config.raw("format")) is not None:
        fields = Fields(form, "output_config.format", ignored)
        _check_one_of(fields, "type", fields.raw("type"), ("json_schema",))
        schema = {"name": "output", "schema": fields.take("schema", dict, "a JSON schema"), "strict": True}
        values["response_format"] = {"type": "json_schema", "json_schema": schema}
        fields.close()
    config.close()
    return values


def _check_one_of(fields: Fields, name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        fields.refuse(name, value, f"one of {', '.join(known)}")
