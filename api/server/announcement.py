"""Log lines of the server's start: changed settings first, and at the end how to use the server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from llmfw.core.base.allowed_values import as_text
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.secret_name import is_secret_option

_PASSWORD = re.compile(r"(://[^:@/?]*:).*@")
_KEYS = ("api_key", "admin_api_key")
_REACHABLE = {"://0.0.0.0:": "://127.0.0.1:", "://[::]:": "://[::1]:"}
"""Part of a URL with a wildcard address → that of a URL that a client on this machine can use."""


@dataclass(frozen=True, slots=True)
class Given:
    """The user's choices that the configs do not contain.

    Attributes:
        model: the model's name or path as the user gave it; None: as in the config.
        derived: fields of the configs that the user did not set, and that were set from the model or at
            random.
        further: further models, as NAME=PATH.
    """

    model: str | None = None
    derived: frozenset[str] = frozenset()
    further: tuple[str, ...] = ()


def settings_line(engine: EngineConfig, server: ServerConfig, given: Given) -> str:
    """Return the settings that the user chose, with API keys, secrets of components and passwords in URLs hidden."""
    fields = (*msgspec.structs.fields(EngineConfig), *msgspec.structs.fields(ServerConfig))
    values = msgspec.structs.asdict(engine) | msgspec.structs.asdict(server)
    found = {field.name: values[field.name] for field in fields if values[field.name] != _default_of(field)}
    found = {name: value for name, value in found.items() if name not in given.derived}
    if given.model is not None:
        found["model"] = given.model
    if given.further:
        found["further_models"] = given.further
    found |= {name: "***" for name in _KEYS if name in found}
    if "options" in found:
        found["options"] = {
            key: "***" if is_secret_option(key) else _PASSWORD.sub(r"\1***@", as_text(value))
            for key, value in found["options"].items()
        }
    listed = ", ".join(f"{name}={value!r}" for name, value in found.items())
    return f"Settings: {listed}; the others have their defaults, see --show-config"


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def ready_text(url: str, models: Sequence[str], *, task: str, is_chat: bool, needs_key: bool) -> str:
    """Return the log text of a server that is ready: its URL, the models, and a curl command to try the first.

    Args:
        url: URL of the socket.
        models: served names of the models.
        task: task of the first model's engine: "generate", "embed" or "classify".
        is_chat: whether there is a chat template.
        needs_key: whether clients must send an API key; the command then reads it from the environment.
    """
    for every, one in _REACHABLE.items():
        url = url.replace(every, one)
    to_socket = ""
    where = f"at {url}/v1 (the base URL for OpenAI clients)"
    if url.startswith("unix:"):
        to_socket, url = f"--unix-socket {shlex.quote(url.removeprefix('unix:'))} ", "http://localhost"
        where = "on the Unix socket"
    path, body = _example(task, is_chat)
    headers = "-H 'Content-Type: application/json'"
    if needs_key:
        headers += ' -H "Authorization: Bearer $LLMFW_API_KEY"'
    data = shlex.quote(msgspec.json.encode({"model": models[0]} | body).decode())
    command = f"curl {to_socket}{shlex.quote(f'{url}/v1/{path}')} {headers} -d {data}"
    if len(models) > 1:
        return f"Models {', '.join(map(repr, models))} are ready {where}. Try {models[0]!r}:\n{command}"
    return f"Model {models[0]!r} is ready {where}. Try it:\n{command}"


def _example(task: str, is_chat: bool) -> tuple[str, dict[str, Any]]:
    """Return the path below /v1 and the body of a request that fits the model."""
    if task == "classify":
        return "classify", {"input": "Hello"}
    if task == "embed":
        return "embeddings", {"input": "Hello"}
    if is_chat:
        message = {"role": "user", "content": "What is the capital of France?"}
        return "chat/completions", {"messages": [message], "max_tokens": 100}
    return "completions", {"prompt": "The capital of France is", "max_tokens": 20}
