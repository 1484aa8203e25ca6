"""What an administrator sees and changes over HTTP, before an engine that keeps what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core.base.control import PinPrefix, PrefixInfo, SetPolicy

from ..doubles.echo_administration import EchoAdministration
from ..doubles.echo_engine import VOCAB_SIZE, EchoEngine
from ..doubles.serving import MARKERS, SERVED_NAME, Served, byte_tokenizer, serving
from .http.test_errors import error_of

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
PINS = "/admin/cache/pins"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("model")
    with serving(EchoEngine(), byte_tokenizer(folder, MARKERS), TURNS) as served:
        yield served


@pytest.fixture
def told(server: Served) -> EchoAdministration:
    administration = server.engine.administration
    administration.commands.clear()
    administration.prefixes.clear()
    assert isinstance(administration, EchoAdministration)
    return administration


def put(server: Served, body: Any) -> httpx.Response:
    return httpx.put(f"{server.url}/admin/policy", json=body)


def pin(server: Served, told: EchoAdministration, **fields: Any) -> PinPrefix:
    """Pin something, and return what the engine was told."""
    reply = server.post(PINS, fields)
    assert reply.status_code == 200, reply.text
    command = told.commands[0]
    assert isinstance(command, PinPrefix)
    assert reply.json()["num_tokens"] == len(command.token_ids)
    return command


def text_of(server: Served, command: PinPrefix) -> str:
    return server.tokenizer.decode(command.token_ids, skip_special_tokens=False)


def test_the_policy_can_be_read_and_changed(server: Served, told: EchoAdministration) -> None:
    options = {"max_overtaken": 8, "share": 0.5, "aged": True, "word": "x"}
    reply = put(server, {"name": "lpm", "options": options})
    as_text = {"max_overtaken": "8", "share": "0.5", "aged": "true", "word": "x"}
    assert told.commands == [SetPolicy("lpm", as_text)]
    found = {"type": "policy", "name": "lpm", "options": as_text, "failure": None, "known": ["fcfs", "lpm"]}
    assert reply.json() == found
    assert httpx.get(f"{server.url}/admin/policy").json() == found


def test_model_info_follows_policy_changes(server: Served) -> None:
    for name in ("lpm", "fcfs"):
        put(server, {"name": name})
        assert httpx.get(f"{server.url}/get_model_info").json()["schedule_policy"] == name


def test_an_unknown_policy_lists_the_known_ones(server: Served) -> None:
    error = error_of(put(server, {"name": "x"}), 400)
    assert (error["param"], error["code"]) == ("name", "unknown")
    assert "known: fcfs, lpm" in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "name"), ({"name": 1}, "name"), ({"name": "lpm", "options": {"a": []}}, "options[...]")],
)
def test_a_wrong_policy_body_names_the_field(server: Served, body: Any, param: str) -> None:
    assert error_of(put(server, body), 400)["param"] == param


def test_the_cache_view_shows_prefix_texts(server: Served, told: EchoAdministration) -> None:
    encode = server.tokenizer.encode
    told.prefixes += [
        PrefixInfo(200, 90, 10, 7, 1.5, 2, True, "s", encode("Be kind"), encode("the end")),
        PrefixInfo(3, 3, 0, 0, 9.0, 0, False, "", encode("abc"), encode("abc")),
    ]
    found = httpx.get(f"{server.url}/admin/cache", params={"most": 2}).json()
    assert (found["num_tokens"], found["num_hit"], found["num_asked"], found["eviction"]) == (9, 3, 12, "lru")
    first, second = found["prefixes"]
    assert (first["first_text"], first["last_text"], first["cache_salt"]) == ("Be kind", "the end", "s")
    assert (second["first_text"], second["last_text"]) == ("abc", "")


@pytest.mark.parametrize("most", ["-1", "x", "1001", "99999999999", "²"])
def test_a_wrong_number_of_prefixes_is_refused(server: Served, most: str) -> None:
    error = error_of(httpx.get(f"{server.url}/admin/cache", params={"most": most}), 400)
    assert error["param"] == "most"


def test_flushing_returns_the_remaining_cache(server: Served) -> None:
    assert httpx.post(f"{server.url}/admin/cache/flush").json()["num_nodes"] == 2


@pytest.mark.parametrize("path", ["/admin/cache/flush", "/flush_cache"])
def test_flushing_reports_a_body_s_fields(server: Served, path: str) -> None:
    assert "llmfw-ignored-params" not in httpx.post(server.url + path).headers
    reply = httpx.post(server.url + path, json={"timeout": 3})
    assert (reply.status_code, reply.headers["llmfw-ignored-params"]) == (200, "timeout")
    assert httpx.post(server.url + path, content=b"{{{").status_code == 400


def test_text_is_pinned_like_a_completion_prompt(server: Served, told: EchoAdministration) -> None:
    command = pin(server, told, prompt="Be kind.", ttl_s=60, cache_salt="s")
    assert command == PinPrefix(server.tokenizer.encode("Be kind."), 60.0, "s")


@pytest.mark.parametrize(("ttl", "seconds"), [("90s", 90), ("1.5m", 90), ("12h", 43200), ("7d", 604800)])
def test_the_duration_may_have_a_unit(
    server: Served, told: EchoAdministration, ttl: str, seconds: float
) -> None:
    assert pin(server, told, input_ids=[1, 2], ttl=ttl).ttl_s == seconds


def test_a_pin_lasts_one_hour_by_default(server: Served, told: EchoAdministration) -> None:
    assert pin(server, told, input_ids=[1, 2]) == PinPrefix([1, 2], 3600.0, "")


def test_messages_are_pinned_without_a_generation_prompt(server: Served, told: EchoAdministration) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert text_of(server, pin(server, told, messages=messages)) == "<system>Be kind.</><user>Hi</>"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "input_ids": [1]}, "input_ids"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "", "content": "a"}]}, "messages[0].role"),
        ({"prompt": ""}, "prompt"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [VOCAB_SIZE]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"input_ids": [1] * 512}, "input_ids"),
        ({"prompt": "a", "tools": []}, "tools"),
        ({"prompt": "a", "ttl_s": 0}, "ttl_s"),
        ({"prompt": "a", "ttl_s": 32e6}, "ttl_s"),
        ({"prompt": "a", "ttl_s": "1"}, "ttl_s"),
        ({"prompt": "a", "ttl": "5"}, "ttl"),
        ({"prompt": "a", "ttl": "0s"}, "ttl"),
        ({"prompt": "a", "ttl": "5s", "ttl_s": 5}, "ttl"),
    ],
)
def test_a_wrong_pin_names_the_field(server: Served, told: EchoAdministration, body: Any, param: str) -> None:
    assert error_of(server.post(PINS, body), 400)["param"] == param
    assert told.commands == []


def test_a_computed_pin_runs_one_request(server: Served, told: EchoAdministration) -> None:
    assert pin(server, told, prompt="Be kind.", cache_salt="s", compute=True).salt == "s"
    request = server.engine.requests[-1]
    assert (request.prompt, request.sampling.max_tokens) == (server.tokenizer.encode("Be kind."), 1)
    assert request.cache_salt == "s"


def test_unpinning_returns_the_pin_or_404(server: Served) -> None:
    pin_id = server.post(PINS, {"input_ids": [1]}).json()["id"]
    assert httpx.delete(f"{server.url}{PINS}/{pin_id}").json()["id"] == pin_id
    error_of(httpx.delete(f"{server.url}{PINS}/{pin_id}"), 404)


def test_a_request_is_found_by_its_reply_id(server: Served) -> None:
    reply = server.chat("Hi", n=3).json()
    found = httpx.get(f"{server.url}/admin/requests/{reply['id']}").json()
    assert [trace["id"] for trace in found["traces"]] == [f"{reply['id']}-{i}" for i in range(3)]
    assert found["traces"][0]["entries"] == [{"kind": "arrived", "at_s": 0.0}]


def test_a_choice_is_found_by_its_id(server: Served) -> None:
    choice_id = f"{server.chat('Hi', n=2).json()['id']}-1"
    found = httpx.get(f"{server.url}/admin/requests/{choice_id}").json()
    assert [trace["id"] for trace in found["traces"]] == [choice_id]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/completions", {"prompt": "Hi"}),
    ],
)
def test_replies_of_other_apis_are_found(server: Served, path: str, body: Any) -> None:
    reply_id = server.post(path, {"model": SERVED_NAME, **body}).json()["id"]
    [trace] = httpx.get(f"{server.url}/admin/requests/{reply_id}").json()["traces"]
    assert trace["prompt_tokens"] == len(server.engine.requests[-1].prompt)
    assert trace["id"] == server.engine.requests[-1].id


def test_an_unknown_request_is_not_found(server: Served) -> None:
    error = error_of(httpx.get(f"{server.url}/admin/requests/chatcmpl-x"), 404)
    assert "'chatcmpl-x'" in error["message"]


def test_a_dead_engine_is_503(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path)) as served:
        served.client._fail("it is gone")
        assert error_of(httpx.get(f"{served.url}/admin/policy"), 503)["code"] == "engine_dead"
