"""Translates Responses requests into chat requests, and chat errors back into Responses errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from llmfw.api.http.body import check_stream_options, decode_nested, fields_of
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.request_fields import given_fields, like
from llmfw.api.schemas.responses import InputRequest, ResponsesRequest
from llmfw.core.base.errors import RequestError

MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512  # of metadata: pairs, characters of a key, characters of a value

_SAME_NAME = (
    "allowed_token_ids",
    "bad_words",
    "cache_salt",
    "constrained_logprobs",
    "frequency_penalty",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "min_p",
    "min_tokens",
    "no_stop_trim",
    "presence_penalty",
    "priority",
    "repeat_penalty",
    "repetition_penalty",
    "safety_identifier",
    "seed",
    "skip_special_tokens",
    "stop",
    "stop_regex",
    "stop_token_ids",
    "stream",
    "temperature",
    "thinking_budget",
    "thinking_token_budget",
    "timeout",
    "top_k",
    "top_p",
    "user",
)
_NEEDLESS = {
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",  # reasoning is plain text, and clients can send it back as plain text
    "web_search_call.action.sources",
    "web_search_call.results",
}
LOGPROBS = "message.output_text.logprobs"
_FUNCTION_KEYS = ("name", "description", "parameters", "strict")
_TOOL_KEYS = {"type", *_FUNCTION_KEYS}


def decode_request(
    raw: bytes, kind: type[ResponsesRequest] = ResponsesRequest
) -> tuple[ResponsesRequest, list[str]]:
    """Decode the body of POST /v1/responses; return it with the names of its fields that have no effect.

    Raises:
        RequestError: as in `decode_nested`; or fields contradict each other or exceed a limit.
    """
    body, ignored = decode_nested(raw, kind, ("text", "reasoning"))
    ignored += _unused_tool_keys(body.tools or ()) + _check_include(body.include or ())
    ignored += ["prompt_cache_key"] if body.prompt_cache_key else []
    _check_metadata(body.metadata or {})
    ignored += check_stream_options(body.stream_options, body.stream, fields_of(raw))
    if body.background and body.store is False:
        raise RequestError("background needs store to be true: the response is fetched later", param="store")
    return body, sorted(ignored)


def decode_input(raw: bytes) -> tuple[InputRequest, list[str]]:
    """Decode the body of POST /v1/responses/input_tokens, as `decode_request` does."""
    body, ignored = decode_nested(raw, InputRequest, ("text", "reasoning"))
    return body, sorted(ignored + _unused_tool_keys(body.tools or ()))


def to_chat(body: InputRequest, messages: Sequence[Mapping[str, Any]]) -> ChatRequest:
    """Convert a Responses request to a chat request.

    Args:
        messages: messages of the whole conversation, without the instructions.

    Raises:
        RequestError: a field is wrong; names the field.
    """
    plain = msgspec.to_builtins(given_fields(body))
    return msgspec.convert({**chat_fields(body, messages), **plain}, like(ChatRequest, body))


def chat_fields(body: InputRequest, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of the chat request for a Responses request. Unset fields are omitted."""
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions else []
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": [*instructions, *messages],
        "tools": [_chat_tool(tool, i) for i, tool in enumerate(body.tools or ())] or None,
        # A Responses request may say "auto" without tools, a chat request may not.
        "tool_choice": _chat_choice(body.tool_choice) if body.tools or body.tool_choice != "auto" else None,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "response_format": _chat_format(format_of(body)),
        "chat_template_kwargs": body.chat_template_kwargs,
        "enable_thinking": body.enable_thinking,
    }
    if isinstance(body, ResponsesRequest):
        fields["max_completion_tokens"] = body.max_output_tokens
        fields |= {name: getattr(body, name) for name in _SAME_NAME}
        if body.top_logprobs or LOGPROBS in (body.include or ()):
            fields |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    return {name: value for name, value in fields.items() if value is not None}


def format_of(body: InputRequest) -> dict[str, Any]:
    """Check and return the request's `text.format`; by default {"type": "text"}.

    Raises:
        RequestError: the format is invalid; names the field.
    """
    given = (body.text.format if body.text else None) or {"type": "text"}
    kind = given.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        _wrong("text.format.type", kind, "'text', 'json_object' or 'json_schema'")
    if kind != "json_schema":
        return {"type": kind}
    if not isinstance(given.get("name"), str):
        _wrong("text.format.name", given.get("name"), "the format's name")
    if not isinstance(given.get("schema"), dict):
        _wrong("text.format.schema", given.get("schema"), "a JSON schema")
    return {"strict": None} | {key: value for key, value in given.items() if value is not None}


def tools_of(body: InputRequest) -> list[dict[str, Any]]:
    """Return the request's tools as the response object lists them."""
    nulls: dict[str, Any] = {"description": None, "parameters": None, "strict": None}
    return [{**nulls, **tool} for tool in body.tools or ()]


def renamed(error: RequestError) -> RequestError:
    """Return a chat completions error with its field renamed to that of the Responses request."""
    theirs = error.param or ""
    for pattern, ours in _NAMES:
        param, found = re.subn(pattern, ours, theirs)
        if found:
            return RequestError(str(error).replace(theirs, param), param=param, code=error.code)
    return error


_NAMES = (
    (r"^max(_completion)?_tokens$", "max_output_tokens"),
    (r"^messages.*|^prompt$", "input"),
    (r"^tools\[(\d+)\]\.function", r"tools[\1]"),
    (r"^response_format(\.json_schema)?", "text.format"),
    (r"^reasoning_effort", "reasoning.effort"),
    (r"^tool_choice\.(function|allowed_tools)", "tool_choice"),
)
"""Pairs of a pattern for a chat completions field and the name of the Responses field."""


def _chat_tool(tool: dict[str, Any], i: int) -> dict[str, Any]:
    if tool.get("type") != "function":
        _wrong(f"tools[{i}].type", tool.get("type"), "'function': this server runs no tools of its own")
    return {
        "type": "function",
        "function": {key: tool[key] for key in _FUNCTION_KEYS if tool.get(key) is not None},
    }


def _chat_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """Return a tool choice in the form of chat completions, which nests the chosen tool one level deeper."""
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    if kind == "function":
        return {"type": kind, "function": {"name": choice.get("name")}}
    if kind != "allowed_tools":
        _wrong("tool_choice.type", kind, "'function' or 'allowed_tools'")
    tools = choice.get("tools")
    if not isinstance(tools, list):
        _wrong("tool_choice.tools", tools, "a list of tools")
    deeper = [_allowed_tool(tool, i) for i, tool in enumerate(tools)]
    return {"type": kind, "allowed_tools": {"mode": choice.get("mode"), "tools": deeper}}


def _allowed_tool(tool: Any, i: int) -> dict[str, Any]:
    if not (isinstance(tool, dict) and tool.get("type") == "function"):
        _wrong(f"tool_choice.tools[{i}]", tool, "a tool of type 'function'")
    return {"type": "function", "function": {"name": tool.get("name")}}


def _chat_format(form: dict[str, Any]) -> dict[str, Any] | None:
    if form["type"] == "text":
        return None
    if form["type"] == "json_object":
        return form
    inner = {key: value for key, value in form.items() if key != "type" and value is not None}
    return {"type": "json_schema", "json_schema": inner}


def _unused_tool_keys(tools: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"tools[{i}].{key}"
        for i, tool in enumerate(tools)
        if tool.get("type") == "function"
        for key in tool
        if key not in _TOOL_KEYS and tool[key] is not None
    ]


def _check_include(names: Sequence[str]) -> list[str]:
    """Return the requested `include` names that have no effect, because this server has no such data."""
    known = {LOGPROBS, *_NEEDLESS}
    for i, name in enumerate(names):
        if name not in known:
            _wrong(f"include[{i}]", name, f"one of {', '.join(sorted(known))}")
    return [f"include[{name}]" for name in names if name != LOGPROBS]


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_PAIRS:
        raise RequestError(
            f"metadata has {len(metadata)} pairs; it must have at most {MAX_PAIRS}", param="metadata"
        )
    for key, value in metadata.items():
        if len(key) > MAX_KEY:
            raise RequestError(
                f"metadata has the key {key[:100]!r} of {len(key)} characters; at most {MAX_KEY} are allowed",
                param="metadata",
            )
        if len(value) > MAX_VALUE:
            raise RequestError(
                f"metadata.{key} has {len(value)} characters; at most {MAX_VALUE} are allowed",
                param=f"metadata.{key}",
            )


def _wrong(param: str, value: Any, expected: str) -> NoReturn:
    raise RequestError(f"{param} is {value!r:.100}; it must be {expected}", param=param)
