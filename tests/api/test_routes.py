"""Models, health, SGLang's native routes, routes of plugins, and what holds for all routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from litestar import get

from llmfw.api.app.app import create_app
from llmfw.api.app.extensions import Extensions
from llmfw.api.app.plugin_routes import usable_routes
from llmfw.api.services.description import public_root
from llmfw.api.services.model_components import ModelComponents
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.stores import Stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, memory_stores, serving


async def bare() -> str:
    return "no decorator"


@get("/plugin/hello")
async def hello() -> dict[str, str]:
    return {"hello": "world"}


@get("/plugin/count")
async def count(most: int) -> dict[str, int]:
    return {"most": most}


@get("/health")
async def taken() -> None:
    """Answer in place of the server's own route."""


def test_models_are_listed(sdk: openai.OpenAI) -> None:
    [card] = sdk.models.list().data
    assert (card.id, card.object) == (SERVED_NAME, "model")


def test_the_sdk_finds_models_with_slashes(sdk: openai.OpenAI) -> None:
    assert sdk.models.retrieve(SERVED_NAME).id == SERVED_NAME


@pytest.mark.parametrize("name", ["org/echo", "org%2Fecho"])
def test_a_model_s_slash_may_be_encoded(server: Served, name: str) -> None:
    card = httpx.get(f"{server.url}/v1/models/{name}").json()
    assert card["id"] == "org/echo"
    assert card["max_model_len"] == 512


def test_a_model_card_shows_no_path(tmp_path: Path) -> None:
    assert public_root(str(tmp_path), "my-model") == "my-model"
    assert public_root("org/on-the-hub", "my-model") == "org/on-the-hub"


def test_a_model_card_belongs_to_llmfw(server: Served) -> None:
    card = httpx.get(f"{server.url}/v1/models").json()["data"][0]
    assert (card["root"], card["owned_by"]) == (server.client.info.model, "llmfw")


@pytest.mark.parametrize("name", ["echo", "org/echo/more", "org"])
def test_another_model_is_not_found(server: Served, name: str) -> None:
    reply = httpx.get(f"{server.url}/v1/models/{name}")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"


def test_health_does_not_generate(server: Served) -> None:
    before = len(server.engine.requests)
    assert httpx.get(server.url + "/health").status_code == 200
    assert len(server.engine.requests) == before


def test_native_generation_replies_with_text_and_figures(server: Served) -> None:
    body = {"text": "Hello world", "sampling_params": {"max_new_tokens": 5}}
    reply = server.post("/generate", body).json()
    assert reply["text"] == "Hello"
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 5}
    assert reply["meta_info"]["prompt_tokens"] == 11
    assert reply["meta_info"]["completion_tokens"] == 5
    assert reply["meta_info"]["cached_tokens"] == 0


def test_native_replies_name_the_stop_string(server: Served) -> None:
    body = {"text": "Hello world", "sampling_params": {"stop": " w"}}
    reply = server.post("/generate", body).json()
    assert reply["text"] == "Hello"
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": " w"}


def test_native_streams_contain_the_text_so_far(server: Served) -> None:
    reply = server.post("/generate", {"input_ids": [65, 66, 67], "stream": True})
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    bodies = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert last == "data: [DONE]"
    assert [len(body["text"]) for body in bodies] == [1, 2, 3, 3]
    assert bodies[-1]["meta_info"]["finish_reason"]["type"] == "stop"


def test_ignored_native_fields_are_reported(server: Served) -> None:
    body = {"text": "Hi", "no_logs": True, "sampling_params": {"mirostat_tau": 5}}
    ignored = server.post("/generate", body).headers["llmfw-ignored-params"]
    assert ignored == "no_logs, sampling_params.mirostat_tau"


def test_model_info_describes_the_running_model(server: Served) -> None:
    info = httpx.get(server.url + "/get_model_info").json()
    assert info["model_path"] == "echo"
    assert info["is_generation"] is True
    assert info["max_model_len"] == 512


def test_a_folder_is_also_named_by_its_path(tmp_path: Path) -> None:
    """A name that the operator chose is the only one."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, status in (("folder", 200), ("chosen", 404)):
        engine = EchoEngine()
        engine.info.model = str(folder)
        with serving(engine, byte_tokenizer(tmp_path), name=name) as served:
            for given, expected in ((name, 200), (str(folder), status), (f"{folder}/", status), ("x", 404)):
                body = {"model": given, "prompt": "Hi", "max_tokens": 1}
                assert served.post("/v1/completions", body).status_code == expected
                assert httpx.get(f"{served.url}/v1/models/{given}").status_code == expected


def test_the_sdk_finds_the_request_id(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(model=SERVED_NAME, prompt="Hi")
    assert reply._request_id is not None
    assert reply._request_id.startswith("req_")


@pytest.mark.parametrize("path", ["/health", "/nothing", "/v1/chat/completions"])
def test_valid_client_request_ids_are_returned(server: Served, path: str) -> None:
    own = httpx.get(server.url + path, headers={"x-request-id": "my-id.42"})
    assert own.headers.get_list("x-request-id") == ["my-id.42"]
    odd = httpx.get(server.url + path, headers={"x-request-id": "<script> alert"})
    assert odd.headers["x-request-id"].startswith("req_")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model")), api_key="sesame") as served:
        yield served


@pytest.mark.parametrize(
    "path", ["/v1/models", "/generate", "/get_model_info", "/nothing", "/health/", "//health"]
)
@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sesame"}]
)
def test_without_the_key_every_path_is_401(locked: Served, path: str, headers: dict[str, str]) -> None:
    reply = httpx.get(locked.url + path, headers=headers)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
    assert reply.headers["x-request-id"]


def test_the_sdk_needs_the_key(locked: Served) -> None:
    with openai.OpenAI(base_url=f"{locked.url}/v1", api_key="sesame") as sdk:
        assert sdk.models.list().data
    with locked.openai() as sdk, pytest.raises(openai.AuthenticationError):
        sdk.models.list()


def test_health_needs_no_key(locked: Served) -> None:
    assert httpx.get(locked.url + "/health").status_code == 200


def test_a_plugin_route_s_wrong_parameter_is_named(tmp_path: Path) -> None:
    routes = [("count", f"{__name__}:count")]
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes) as served:
        assert httpx.get(f"{served.url}/plugin/count?most=3").json() == {"most": 3}
        reply = httpx.get(f"{served.url}/plugin/count?most=x")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "most")
    assert "most: Expected `int`, got `str`" in reply.json()["error"]["message"]


def test_plugin_routes_need_the_key(tmp_path: Path) -> None:
    routes = [("hello", f"{__name__}:hello")]
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes, api_key="sesame") as served:
        assert httpx.get(f"{served.url}/plugin/hello").status_code == 401
        reply = httpx.get(f"{served.url}/plugin/hello", headers={"authorization": "Bearer sesame"})
        assert reply.json() == {"hello": "world"}


CONFIG = ServerConfig(served_model_name="x")


def idle_model(server: Served, folder: Path) -> StartedModel:
    tokenizer, template = byte_tokenizer(folder), JinjaChatTemplate("", {})
    return StartedModel(server.client, ModelComponents(tokenizer=tokenizer, chat_template=template), CONFIG)


def test_an_unimportable_plugin_route_is_named(server: Served, tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"nothing:here.*plugin 'broken'"):
        create_app(
            [idle_model(server, tmp_path)],
            Stores(**memory_stores()),
            CONFIG,
            Extensions([("broken", "nothing:here")]),
        )


def test_an_unimportable_plugin_route_stops_no_server(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = ("hello", f"{__name__}:hello"), ("broken", "nothing:here")
    assert usable_routes([bad, good]) == [good]
    assert "'nothing:here' of plugin 'broken'" in caplog.text
    assert usable_routes([("bare", f"{__name__}:bare"), good]) == [good]
    assert (
        "'bare' (unknown package , tests.api.test_routes:bare) is a function that none of litestar's get"
        in caplog.text
    )
    monkeypatch.setenv("LLMFW_STRICT_PLUGINS", "1")
    with pytest.raises(ComponentError, match="No module named 'nothing'"):
        usable_routes([bad, good])


def test_a_route_at_a_taken_path_is_named(server: Served, tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"taken' of plugin 'second'.*is at a path that is taken: GET"):
        create_app(
            [idle_model(server, tmp_path)],
            Stores(**memory_stores()),
            CONFIG,
            Extensions([("hello", f"{__name__}:hello"), ("second", f"{__name__}:taken")]),
        )
