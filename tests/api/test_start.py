"""What is decided before the server runs: port, parts, fingerprint, messages' roles."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from llmfw.api.app.listen import bind, url_of
from llmfw.api.chat.messages import check_messages
from llmfw.api.chat.roles import role_probe
from llmfw.api.services.components import build_chat_template
from llmfw.api.services.fingerprint import TELLING_KINDS, system_fingerprint
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import byte_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return byte_tokenizer(tmp_path)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_a_bound_port_refuses_until_it_listens(host: str, shown: str) -> None:
    with bind(host, 0) as sock:
        assert url_of(sock).startswith(shown)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(sock.getsockname()[:2])


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("192.0.2.1", 0)])
def test_an_unusable_address_is_named(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match=host):
        bind(host, port)


def test_the_chat_template_is_chosen_correctly(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The model's own, a named component or a file."""
    registry = load_plugins().registry
    (tmp_path / "own.jinja").write_text("own {{ messages[0].content }}")
    for name, expected in ((None, tokenizer.chat_template), ("jinja", tokenizer.chat_template)):
        assert build_chat_template(name, registry, tokenizer).source == expected
    from_file = build_chat_template(str(tmp_path / "own.jinja"), registry, tokenizer)
    assert from_file.render([{"role": "user", "content": "Hi"}]) == "own Hi"


MARKED = """
from llmfw.core.interfaces.chat_template import ChatTemplate

@hookimpl
def register_chat_templates(register):
    register("marked", __name__ + ":Marked")

class Marked(ChatTemplate):
    class Options(ChatTemplate.Options, frozen=True):
        mark: str = ">"
        times: int = 1
    def __init__(self, source, special_tokens, options):
        super().__init__(source, special_tokens)
        self.start = options.mark * options.times
    def render(self, messages, **more):
        return self.start + messages[0]["content"]
"""


def test_a_chat_template_receives_its_options(
    tokenizer: Tokenizer, install_plugin: Callable[..., Path]
) -> None:
    install_plugin("marked", MARKED)
    registry, chat = load_plugins().registry, [{"role": "user", "content": "Hi"}]
    options = {"chat_template.mark": "#", "chat_template.times": "2", "policy.x": "1"}
    assert build_chat_template("marked", registry, tokenizer).render(chat) == ">Hi"
    assert build_chat_template("marked", registry, tokenizer, options).render(chat) == "##Hi"
    with pytest.raises(ConfigError, match="chat template 'marked' has no option 'size'"):
        build_chat_template("marked", registry, tokenizer, {"chat_template.size": "1"})


def test_a_missing_chat_template_lists_the_known(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"'jinga' cannot be read.*known: .*jinja"):
        build_chat_template("jinga", load_plugins().registry, tokenizer)


def test_the_fingerprint_changes_with_the_engine() -> None:
    info = EchoEngine().info
    assert system_fingerprint(info) == system_fingerprint(EchoEngine().info)
    for change in ({"dtype": "bfloat16"}, {"attention": "other"}, {"weight_version": "2"}):
        assert system_fingerprint(msgspec.structs.replace(info, **change)) != system_fingerprint(info)


def test_a_template_s_own_role_is_allowed() -> None:
    source = "{% if message.role == 'ipython' %}"
    assert check_messages([{"role": "ipython", "content": "1"}], source)
    assert role_probe([{"role": "ipython", "content": "1"}], source) is None
    assert role_probe([{"role": "python", "content": "1"}], source) is not None


def test_reasoning_is_read_under_both_names() -> None:
    [message] = check_messages([{"role": "assistant", "content": "", "reasoning": "Hm"}], "")
    assert message["reasoning_content"] == "Hm"


def test_the_api_imports_no_torch(fresh_python: Callable[..., str]) -> None:
    code = "import sys, llmfw.api.app.serving, llmfw.api.llm; print([m in sys.modules for m in ('torch', 'transformers')])"
    assert fresh_python(code) == "[False, False]\n"


def test_a_server_of_text_imports_no_http_client(fresh_python: Callable[..., str]) -> None:
    """httpx brings rich and pygments: 120 modules. Only the fetcher of images needs it."""
    code = "import sys, llmfw.api.app.serving; print(sorted({'httpx', 'rich'} & sys.modules.keys()))"
    assert fresh_python(code) == "[]\n"


@pytest.mark.parametrize(
    ("source", "role"),
    [("{{ 'system' }}", "system"), ("{{ 'developer' }}", "developer"), ("", "developer")],
)
def test_developer_becomes_system_if_unknown(source: str, role: str) -> None:
    given = [{"role": "developer", "content": "Be brief."}]
    [message] = check_messages(given, source)
    assert message["role"] == role
    assert given[0]["role"] == "developer"


def test_the_fingerprint_ignores_places_and_sizes() -> None:
    info = msgspec.structs.replace(EchoEngine().info, weight_version="1", model="here")
    moved = msgspec.structs.replace(info, model="there", max_total_tokens=7)
    assert system_fingerprint(info) == system_fingerprint(moved)
    other = [system_fingerprint(msgspec.structs.replace(info, weight_version="2"))]
    other += [system_fingerprint(info, ["template"]), system_fingerprint(info, [EchoEngine])]
    assert len({*other, system_fingerprint(info)}) == 4


def test_relevant_component_options_change_the_fingerprint() -> None:
    info = EchoEngine().info
    given: list[dict[str, OptionValue]] = [
        *({f"{kind}.x": 1} for kind in TELLING_KINDS),
        {"tool_parser.x": 2},
        {"tool_parser.y": 1},
        {},
    ]
    assert len({system_fingerprint(info, (), options) for options in given}) == len(given)
    assert system_fingerprint(info, (), {"grammar.x": 1}) == system_fingerprint(info, (), {"grammar.x": "1"})
    for same in ({"policy.x": 1}, {"drafter.x": 1}, {"file_store.url": "secret"}):
        assert system_fingerprint(info, (), same) == system_fingerprint(info)


def test_sampling_defaults_change_the_fingerprint() -> None:
    """The policy does not."""
    info = EchoEngine().info
    assert system_fingerprint(info, sampling_defaults={"top_p": 0.9}) != system_fingerprint(info)
    assert system_fingerprint(msgspec.structs.replace(info, policy="fair")) == system_fingerprint(info)


def test_a_template_exceeding_a_limit_is_named(tmp_path):
    registry, tokenizer = load_plugins().registry, byte_tokenizer(tmp_path)
    path = tmp_path / "bomb.jinja"
    path.write_text("{{ 'a' * 10 ** 10 }}")
    with pytest.raises(
        ConfigError, match=r"bomb\.jinja: the chat template makes a text of 10000000000 characters"
    ):
        build_chat_template(str(path), registry, tokenizer)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bomb\.jinja is not UTF-8"):
        build_chat_template(str(path), registry, tokenizer)
