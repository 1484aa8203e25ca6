"""`llmfw cache`, `llmfw policy` and `llmfw trace` against a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.core.base.control import PinPrefix, PrefixInfo, SetPolicy

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving
from .test_admin import TURNS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
    with serving(EchoEngine(), tokenizer, TURNS) as served:
        prefix = tokenizer.encode("Be\x1b[2J kind")
        served.engine.administration.prefixes.append(
            PrefixInfo(20_000, 9, 70, 12, 3.25, 2, True, "team", prefix, prefix)
        )
        yield served


def llmfw(server: Served, line: str, stdin: str = "", **env: str) -> Result:
    arguments = [*line.split(), "--base-url", server.url]
    return CliRunner().invoke(build_cli(), arguments, input=stdin, env=env)


def test_the_cache_is_shown_as_a_table(server: Served) -> None:
    result = llmfw(server, "cache show")
    assert result.exit_code == 0, result.output
    assert "3 of 12 prompt tokens were found (25.0 %)" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "20000" in line)
    assert row.split("\t")[:8] == ["20000", "9", "70", "12", "3.2 s", "2", "yes", "team"]
    assert "\x1b" not in result.stdout


def test_the_json_view_equals_the_server_s_reply(server: Served) -> None:
    found = json.loads(llmfw(server, "cache show --json --most 3").stdout)
    assert found["prefixes"][0]["num_tokens"] == 20_000


def test_flushing_prints_the_remaining_cache(server: Served) -> None:
    assert "9 tokens in 2 edges" in llmfw(server, "cache flush").stdout


def test_text_can_be_pinned_and_unpinned(server: Served, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Be kind.")
    result = llmfw(server, f"cache pin {tmp_path / 'prompt.txt'} --ttl 90s --cache-salt s")
    pin_id, _, rest = result.stdout.partition(": ")
    assert rest == "8 tokens, 0 of them cached, for 1.5 min\n"
    assert server.engine.administration.commands[-1] == PinPrefix(
        server.tokenizer.encode("Be kind."), 90.0, "s"
    )
    assert pin_id in llmfw(server, "cache show").stdout
    assert llmfw(server, f"cache unpin {pin_id}").stdout == f"{pin_id} is not pinned any more\n"
    assert "there is no pin" in llmfw(server, f"cache unpin {pin_id}").stderr


@pytest.mark.parametrize("wrap", [lambda messages: messages, lambda messages: {"messages": messages, "n": 2}])
def test_messages_are_pinned_from_standard_input(server: Served, wrap) -> None:
    messages = wrap([{"role": "user", "content": "Hi"}])
    result = llmfw(server, "cache pin - --messages --json", json.dumps(messages))
    assert json.loads(result.stdout)["expires_in_s"] == 3600.0


@pytest.mark.parametrize("text", ["no JSON", "{}", "7"])
def test_invalid_messages_are_a_usage_error(server: Served, text: str) -> None:
    assert llmfw(server, "cache pin - --messages", text).exit_code == 2


def test_the_policy_is_shown_and_set(server: Served) -> None:
    assert llmfw(server, "policy set lpm -o max_overtaken=8 -o policy.b=c").exit_code == 0
    assert server.engine.administration.commands[-1] == SetPolicy("lpm", {"max_overtaken": "8", "b": "c"})
    shown = llmfw(server, "policy show").stdout
    assert shown == "lpm with max_overtaken=8, b=c\nthere are: fcfs, lpm\n"


@pytest.mark.parametrize("options", ["-o a", "-o =b", "-o a=b -o policy.a=c"])
def test_an_invalid_option_is_a_usage_error(server: Served, options: str) -> None:
    assert llmfw(server, f"policy set lpm {options}").exit_code == 2


def test_an_unknown_policy_prints_the_known_ones(server: Served) -> None:
    result = llmfw(server, "policy set x")
    assert result.exit_code == 1
    assert "400 from the server: unknown policy 'x'; known: fcfs, lpm" in result.stderr


def test_a_request_s_trace_is_a_table(server: Served) -> None:
    request_id = server.chat("Hi").json()["id"]
    result = llmfw(server, f"trace {request_id}")
    assert f"{request_id}-0: 14 prompt tokens" in result.stdout
    assert "arrived" in result.stdout
    assert json.loads(llmfw(server, f"trace {request_id} --json").stdout)["id"] == request_id


def test_the_key_may_come_from_the_environment(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), admin_api_key="root") as locked:
        assert "401 from the server" in llmfw(locked, "policy show").stderr
        assert llmfw(locked, "policy show", LLMFW_ADMIN_API_KEY="root").exit_code == 0
        assert llmfw(locked, "policy show --api-key root").exit_code == 0
