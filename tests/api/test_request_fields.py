"""Fields of plugins in request bodies: checked by the API, and passed on as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import pytest

from llmfw.api.http.body import decode_generation
from llmfw.api.schemas.completions import CompletionRequest
from llmfw.api.services.chosen_fields import chosen_fields
from llmfw.api.services.request_fields import build_request_fields, check_request_fields
from llmfw.api.text.request_fields import RequestFields, field_values
from llmfw.core import Entry, Registry, RequestField
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

MESSAGES = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 5, "model": "org/echo"},
    "/generate": {"text": "hi"},
}


class Place(msgspec.Struct):
    x: int
    y: int = 0


OWN_VALUES: dict[int, Any] = {70: 2**70, 71: {"a": [float("nan")]}, 72: -float("inf"), 73: "\ud800"}


class Where(RequestField):
    value_type = Place

    def validate(self, value: Place) -> Place:
        if value.x == 13:
            raise ValueError("x is unlucky")
        if value.x == 0:
            raise ZeroDivisionError("a defect of the field")
        return OWN_VALUES.get(value.x, value)


class Speed(RequestField):
    class Options(RequestField.Options, frozen=True):
        most: int = 9

    options: Options
    value_type = Annotated[int, msgspec.Meta(ge=1)]
    default = 4
    routes = ("/v1/chat/completions",)

    def validate(self, value: int) -> int:
        return min(value, self.options.most)


class Words(RequestField):
    value_type = list[str]


class Typeless(RequestField):
    pass


def entry(name: str, component: str, plugin: str = "ext", kind: str = "request_field", **more: Any) -> Entry:
    return Entry(kind, name, f"{__name__}:{component}", plugin, "llmfw-ext", "1.2", **more)


REGISTRY = Registry(
    [
        entry("where", "Where"),
        entry("speed", "Speed"),
        entry("words", "Words"),
        entry("twice", "Words", "a"),
        entry("twice", "Words", "b"),
        entry("temperature", "Words"),
        entry("best_of", "Words"),
        entry("top_n_sigma", "Words"),
        entry("two-words", "Words"),
        entry("typeless", "Typeless"),
        entry("hasty", "Policy", kind="policy", needs_fields=("speed",)),
        entry("lost", "Policy", kind="policy", needs_fields=("spede",)),
    ]
)


def configs(fields: str = "none", policy: str = "lpm", **options: Any) -> tuple[EngineConfig, ServerConfig]:
    return (
        EngineConfig(model="m", policy=policy),
        ServerConfig(served_model_name="m", request_fields=fields, options=options),
    )


def built(fields: str = "none", policy: str = "lpm", **options: Any) -> RequestFields:
    return build_request_fields(*configs(fields, policy, **options), REGISTRY)


@pytest.fixture(scope="module")
def fielded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    fields = built("where,speed,words")
    with serving(EchoEngine(), tokenizer, request_fields=fields, ledger=REGISTRY.ledger) as served:
        yield served


def error_of(reply: Any, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize("path", BODIES)
def test_each_route_passes_fields_to_the_engine(fielded: Served, path: str) -> None:
    reply = fielded.post(path, {**BODIES[path], "where": {"x": 1}, "words": ["a"]})
    assert reply.status_code == 200, reply.text
    assert "llmfw-ignored-params" not in reply.headers
    default = {"speed": 4} if path == "/v1/chat/completions" else {}
    assert fielded.engine.requests[-1].fields == {"where": {"x": 1, "y": 0}, "words": ["a"], **default}


@pytest.mark.parametrize("path", BODIES)
def test_a_wrong_value_names_its_field(fielded: Served, path: str) -> None:
    wrong = {"where": {"x": "1"}}, {"where": {"x": 13}}, {"words": "a"}
    for fields, said in zip(
        wrong, ["where.x is", 'where is {"x":13,"y":0}: x is unlucky', "words is"], strict=True
    ):
        assert error_of(fielded.post(path, {**BODIES[path], **fields}))["message"].startswith(said)


def test_a_field_outside_its_routes_is_ignored(fielded: Served) -> None:
    reply = fielded.post("/v1/completions", {"prompt": "hi", "speed": 3})
    assert reply.headers["llmfw-ignored-params"] == "speed"
    assert fielded.engine.requests[-1].fields == {}


def test_null_and_absent_fields_have_the_default(fielded: Served) -> None:
    for fields in ({}, {"speed": None, "where": None}):
        assert fielded.chat("hi", **fields).status_code == 200
        assert fielded.engine.requests[-1].fields == {"speed": 4}


def test_validate_may_change_the_value(fielded: Served) -> None:
    fielded.chat("hi", speed=50)
    assert fielded.engine.requests[-1].fields == {"speed": 9}


def test_large_values_are_refused(fielded: Served) -> None:
    error = error_of(fielded.chat("hi", words=["a" * 1000] * 17))
    assert error["param"] == "words"
    assert "at most 16384 are allowed" in error["message"]
    assert (
        error_of(fielded.chat("hi", where={"x": 2**80}))["message"]
        == "where is or has an integer of more than 64 bits; send another value"
    )


@pytest.mark.parametrize("x", OWN_VALUES)
def test_an_unsendable_value_is_the_plugins_fault(
    fielded: Served, x: int, caplog: pytest.LogCaptureFixture
) -> None:
    error = error_of(fielded.chat("hi", where={"x": x}), 500)
    assert "request field 'where' of plugin 'ext' failed" in error["message"]
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "of plugin 'ext' (llmfw-ext 1.2" in record.getMessage()
    assert f"returned {OWN_VALUES[x]!r}, which is or has" in record.getMessage()


def test_a_failing_field_costs_its_request(fielded: Served) -> None:
    before = sum(use.failures for use in REGISTRY.ledger.uses() if use.name == "where")
    error = error_of(fielded.chat("hi", where={"x": 0}), 500)
    assert "request field 'where' of plugin 'ext' failed" in error["message"]
    assert fielded.chat("go on").status_code == 200
    [use] = [use for use in REGISTRY.ledger.uses() if use.name == "where"]
    assert (use.kind, use.failures) == ("request_field", before + 1)


def test_the_openapi_document_shows_fields(fielded: Served) -> None:
    import httpx

    schemas = httpx.get(f"{fielded.url}/openapi.json").json()["components"]["schemas"]
    assert schemas["ChatRequest"]["properties"]["speed"]["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert "speed" not in schemas["CompletionRequest"]["properties"]
    assert schemas["Place"]["required"] == ["x"]


@pytest.mark.parametrize(
    ("fields", "policy", "why"),
    [
        ("wher", "lpm", "unknown request field 'wher'"),
        ("twice", "lpm", "request field 'twice' is brought by 2 plugins; choose one of: a/twice, b/twice"),
        ("a/twice,b/twice", "lpm", "several request fields are named 'twice': a/twice, b/twice"),
        ("temperature", "lpm", "has the name of a field of the API"),
        ("best_of", "lpm", "has the name of a field of the API"),
        ("two-words", "lpm", "is not a name of a field"),
        ("typeless", "lpm", "has no value_type; set it"),
        ("none", "lost", "needs the request field 'spede': unknown request field 'spede'"),
    ],
)
def test_what_cannot_work_is_refused(fields: str, policy: str, why: str) -> None:
    for refuse in (check_request_fields, build_request_fields):
        with pytest.raises(ConfigError, match=why):
            refuse(*configs(fields, policy), REGISTRY)


def test_options_are_for_a_chosen_field() -> None:
    with pytest.raises(ConfigError, match=r"no request field 'speed' is chosen; --request-fields"):
        built("where", **{"request_field.speed.most": "3"})
    with pytest.raises(ConfigError, match=r"request field 'speed' has no option 'mots'"):
        built("speed", **{"request_field.speed.mots": "3"})


def test_a_component_activates_its_fields() -> None:
    from llmfw.api.schemas.chat import ChatRequest

    path = "/v1/chat/completions"
    assert built().body_type(ChatRequest, path) is ChatRequest
    assert "speed" in built(policy="hasty").body_type(ChatRequest, path).__struct_fields__


def test_edf_activates_its_deadline() -> None:
    from llmfw.api.schemas.native import GenerateRequest

    found = build_request_fields(*configs(policy="edf"), load_plugins().registry)
    assert "deadline_ms" in found.body_type(GenerateRequest, "/generate").__struct_fields__


def test_a_policy_needs_its_own_plugin_s_field() -> None:
    """Also if another plugin brings a field of that name."""
    own = [entry("speed", "Words"), entry("hasty", "Policy", kind="policy", needs_fields=("speed",))]
    registry = Registry([*own, replace(own[0], plugin="other")])
    found = chosen_fields(*configs(policy="hasty"), registry)
    assert [each.full_name for each in found] == ["ext/speed"]


def test_plugins_may_bring_refused_samplers() -> None:
    """Its field is honored from then on, by its routes."""
    raw = b'{"prompt": "hi", "top_n_sigma": ["a"]}'
    with pytest.raises(RequestError, match="top_n_sigma is"):
        decode_generation(raw, CompletionRequest)
    kind = built("top_n_sigma").body_type(CompletionRequest, "/v1/completions")
    body, ignored = decode_generation(raw, kind)
    assert (field_values(body), ignored) == ({"top_n_sigma": ["a"]}, [])
