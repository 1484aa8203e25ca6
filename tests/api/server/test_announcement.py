"""What the log says of a server's settings, and when it is ready."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from llmfw.api.server.announcement import Given, ready_text, settings_line
from llmfw.core.base.config import EngineConfig, ServerConfig

URL = "http://127.0.0.1:30000"


def line_of(**settings: Any) -> str:
    return settings_line(EngineConfig(model="m"), ServerConfig(served_model_name="n", **settings), Given())


def test_default_settings_are_left_out() -> None:
    said = "Settings: model='m', port=8000, served_model_name='n';"
    assert line_of(port=8000, host="127.0.0.1").startswith(said)


def test_the_settings_line_shows_what_users_gave() -> None:
    engine = EngineConfig(model="/a/folder/of/weights", random_seed=5)
    server = ServerConfig(served_model_name="demo", tool_parser="hermes", port=8000)
    given = Given("demo", frozenset({"random_seed", "served_model_name"}))
    said = "Settings: model='demo', port=8000, tool_parser='hermes';"
    assert settings_line(engine, server, given).startswith(said)


def test_keys_are_hidden() -> None:
    line = line_of(api_key=(("ann", "secret"),), admin_api_key="secret")
    assert "api_key='***', admin_api_key='***'" in line
    assert "secret" not in line


def test_passwords_in_urls_of_options_are_hidden() -> None:
    line = line_of(options={"file_store.url": "postgresql://me:s3/cr3t?@host/db", "policy.x": "a:b@c"})
    assert "'file_store.url': 'postgresql://me:***@host/db', 'policy.x': 'a:b@c'" in line
    assert "cr3t" not in line


def test_secrets_of_options_are_hidden() -> None:
    line = line_of(options={"authenticator.sso.client_token": "hush", "authenticator.sso.url": "a"})
    assert "{'authenticator.sso.client_token': '***', 'authenticator.sso.url': 'a'}" in line


def command_of(url: str = URL, model: str = "demo", **changes: Any) -> tuple[str, list[str]]:
    """Return the line about the model, and the words of the command."""
    settings: dict[str, Any] = {"task": "generate", "is_chat": True, "needs_key": False}
    line, command = ready_text(url, [model], **(settings | changes)).split("\n")
    return line, shlex.split(command)


@pytest.mark.parametrize(
    ("changes", "path", "field"),
    [
        ({}, "chat/completions", "messages"),
        ({"is_chat": False}, "completions", "prompt"),
        ({"task": "embed"}, "embeddings", "input"),
    ],
)
def test_the_printed_command_fits_the_model(changes: dict[str, Any], path: str, field: str) -> None:
    line, words = command_of(model="it's", **changes)
    assert line.startswith(f'Model "it\'s" is ready at {URL}/v1')
    assert words[:2] == ["curl", f"{URL}/v1/{path}"]
    body = json.loads(words[-1])
    assert body["model"] == "it's"
    assert field in body


def test_the_key_comes_from_the_environment() -> None:
    assert "Authorization: Bearer $LLMFW_API_KEY" in command_of(needs_key=True)[1]
    assert '"Authorization: Bearer $LLMFW_API_KEY"' in ready_text(
        URL, ["demo"], task="generate", is_chat=True, needs_key=True
    )


@pytest.mark.parametrize(
    ("url", "shown"), [("http://0.0.0.0:1", "http://127.0.0.1:1"), ("http://[::]:1", "http://[::1]:1")]
)
def test_the_command_names_a_reachable_address(url: str, shown: str) -> None:
    assert command_of(url)[1][1] == f"{shown}/v1/chat/completions"
