"""`--middleware`: order, place in front of or behind the check of keys, and what its failures cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from llmfw.api.services.middleware import Middleware, build_middleware
from llmfw.core import ConfigError, HTTPMiddleware, OverloadedError, RequestError
from llmfw.core.base.config import ServerConfig
from llmfw.core.plugin.calls import ComponentCalls, ComponentLedger
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

KEY = "alice-0123456789abcdef"
HEADERS = {"authorization": f"Bearer {KEY}"}
BODY: dict[str, Any] = {"model": SERVED_NAME, "prompt": "Hello"}
ORIGINS = "middleware.cors.origins"


class Tagged(HTTPMiddleware):
    """Appends its tag to a header of the reply."""

    def __init__(self, tag: str) -> None:
        super().__init__(self.Options())
        self.tag, self.seen = tag.encode(), 0

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        self.seen += 1

        async def tagged(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-tag", self.tag)]
            await send(message)

        await app(scope, receive, tagged)


class Misbehaving(HTTPMiddleware):
    """Does what the header `x-do` says."""

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        what = dict(scope["headers"]).get(b"x-do", b"").decode()
        await getattr(self, what or "nothing")(app, scope, receive, send)

    async def nothing(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    async def raises(self, *_: Any) -> None:
        raise ValueError("the plugin's own")

    async def panics(self, *_: Any) -> None:
        raise SystemExit(3)

    async def leaves(self, *_: Any) -> None:
        raise GeneratorExit

    async def cancels(self, *_: Any) -> None:
        raise asyncio.CancelledError

    async def refuses(self, *_: Any) -> None:
        raise RequestError("not like this")

    async def overloads(self, *_: Any) -> None:
        raise OverloadedError("too much")

    async def silent(self, *_: Any) -> None:
        pass

    async def lies(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 99, "headers": []})

    async def splits(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\r\nc: d")]})

    async def body_first(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": b"x"})

    async def text(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send("http.response.start")

    async def swallows(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "nonsense"})
        except Exception:  # noqa: BLE001
            await app(scope, receive, send)

    async def breaks_app(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def broken(message: Any) -> None:
            await send({**message, "status": "ok"})

        await app(scope, receive, broken)

    async def escapes(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "path": "/admin/cache"}, receive, send)

    async def breaks_send(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def broken(message: Any) -> None:
            raise GeneratorExit

        await app(scope, receive, broken)

    async def breaks_receive(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def broken() -> Any:
            raise asyncio.CancelledError

        await app(scope, broken, send)

    async def breaks_once(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        broken = [TimeoutError("in the wrapper")]

        async def once(message: Any) -> None:
            if broken:
                raise broken.pop()
            await send(message)

        await app(scope, receive, once)

    async def gives_up(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        class Enough(BaseException):
            pass

        async def stopping(message: Any) -> None:
            raise Enough

        try:
            await app(scope, receive, stopping)
        except Enough:
            await self.bare(app, scope, receive, send)

    async def twice(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        await app(scope, receive, send)

    async def cuts(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})

    async def generator(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": (pair for pair in message["headers"])}
            await send(message)

        await app(scope, receive, sent)

    async def bare(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"bare"})

    async def hangs(self, *_: Any) -> None:
        await asyncio.sleep(2)


def middleware(component: HTTPMiddleware, *, outside: bool = False, name: str = "odd") -> Middleware:
    entry = Entry("middleware", name, "x:Y", "odd_plugin", "odd", "1.0")
    return Middleware(component, ComponentCalls(entry), outside)


@pytest.fixture(scope="module")
def odd() -> Middleware:
    return middleware(Misbehaving(HTTPMiddleware.Options()))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, odd: Middleware) -> Iterator[Served]:
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path_factory.mktemp("model")),
        api_key=(("alice", KEY),),
        middleware_objects=(odd,),
    ) as served:
        yield served


def asked(served: Served, what: str, path: str = "/v1/completions", **fields: Any) -> httpx.Response:
    headers = HEADERS | {"x-do": what}
    return httpx.post(served.url + path, headers=headers, json=BODY | fields, timeout=20)


@pytest.mark.parametrize(
    "what",
    [
        "raises",
        "panics",
        "leaves",
        "cancels",
        "silent",
        "lies",
        "splits",
        "body_first",
        "text",
        "swallows",
        "breaks_app",
        "breaks_send",
        "breaks_receive",
        "escapes",
    ],
)
def test_a_failure_is_a_500_naming_the_plugin(served: Served, odd: Middleware, what: str) -> None:
    failures = odd.calls.failures
    reply = asked(served, what)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "plugin_error"
    assert "middleware 'odd' of plugin 'odd_plugin'" in reply.json()["error"]["message"]
    assert reply.headers["x-request-id"]
    assert odd.calls.failures == failures + 1
    assert asked(served, "").status_code == 200


def test_a_swallowed_failure_is_logged(served: Served, odd: Middleware) -> None:
    failures = odd.calls.failures
    assert asked(served, "breaks_once").status_code == 500
    assert odd.calls.failures == failures + 1


def test_middleware_may_end_the_application(served: Served, odd: Middleware) -> None:
    failures = odd.calls.failures
    assert (asked(served, "gives_up").status_code, odd.calls.failures) == (200, failures)


def test_failures_have_the_format_of_the_path(served: Served) -> None:
    reply = asked(served, "raises", "/v1/messages")
    assert (reply.status_code, reply.json()["type"]) == (500, "error")
    assert reply.json()["error"]["type"] == "api_error"


@pytest.mark.parametrize(
    ("what", "path", "status"),
    [("refuses", "/v1/completions", 400), ("overloads", "/x", 503), ("overloads", "/v1/messages", 529)],
)
def test_meant_errors_are_replies(served: Served, odd: Middleware, what: str, path: str, status: int) -> None:
    failures = odd.calls.failures
    assert asked(served, what, path).status_code == status
    assert odd.calls.failures == failures


def test_a_second_reply_reaches_no_client(served: Served, odd: Middleware) -> None:
    failures = odd.calls.failures
    with httpx.Client(headers=HEADERS, timeout=20) as client:
        url = served.url + "/v1/models"
        assert client.get(url, headers={"x-do": "twice"}).status_code == 200
        assert client.get(url).status_code == 200
    assert odd.calls.failures == failures + 1


def test_a_cut_reply_ends_its_connection(served: Served) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        asked(served, "cuts")
    assert asked(served, "").status_code == 200


def test_a_hang_costs_only_its_request(served: Served) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(served.url + "/v1/models", headers=HEADERS | {"x-do": "hangs"}, timeout=0.3)
    assert asked(served, "").status_code == 200


def test_errors_of_routes_are_not_the_plugins(served: Served, odd: Middleware) -> None:
    failures = odd.calls.failures
    assert asked(served, "", max_tokens=-1).status_code == 400
    assert asked(served, "", "/unknown").status_code == 404
    assert odd.calls.failures == failures


def test_any_iterable_of_headers_is_sent(served: Served) -> None:
    reply = asked(served, "generator")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")


def test_a_reply_needs_no_headers(served: Served) -> None:
    reply = asked(served, "bare")
    assert (reply.status_code, reply.text) == (200, "bare")
    assert reply.headers["x-request-id"]


class Counts(HTTPMiddleware):
    """Counts the messages of replies."""

    def __init__(self) -> None:
        super().__init__(self.Options())
        self.count = 0

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        def counted(message: Any) -> Any:
            self.count += 1
            return send(message)

        await app(scope, receive, counted)


class CountsFew(Counts):
    skips_events = True


@pytest.mark.parametrize("order", [(Counts, CountsFew), (CountsFew, Counts), (CountsFew, CountsFew)])
def test_events_bypass_who_skips_them(
    tmp_path_factory: pytest.TempPathFactory, order: tuple[type[Counts], ...]
) -> None:
    """It sees the start and the last message, whatever stands outside or inside of it."""
    counting = [made() for made in order]
    objects = tuple(
        Middleware(each, middleware(each).calls, is_outside=False, skips_events=each.skips_events)
        for each in counting
    )
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model")), middleware_objects=objects
    ) as served:
        text = httpx.post(served.url + "/v1/completions", json=BODY | {"stream": True}, timeout=20).text
    assert text.endswith("data: [DONE]\n\n")
    num_events = text.count("data: ")
    assert num_events > 2
    for each in counting:
        assert each.count == 2 if each.skips_events else each.count >= 2 + num_events


def test_streams_pass(served: Served) -> None:
    assert asked(served, "", stream=True).text.endswith("data: [DONE]\n\n")


def test_only_outer_middleware_sees_unknown_clients(tmp_path: Any) -> None:
    outer, first, second = Tagged("outer"), Tagged("first"), Tagged("second")
    layers = (
        middleware(outer, outside=True, name="o"),
        middleware(first, name="f"),
        middleware(second, name="s"),
    )
    options: dict[str, Any] = {"api_key": (("alice", KEY),), "middleware_objects": layers}
    with serving(EchoEngine(), byte_tokenizer(tmp_path), **options) as served:
        refused = httpx.get(served.url + "/v1/models")
        answered = httpx.get(served.url + "/v1/models", headers=HEADERS)
        httpx.get(served.url + "/admin/cache")
    assert (refused.status_code, refused.headers.get_list("x-tag")) == (401, ["outer"])
    assert answered.headers.get_list("x-tag") == ["second", "first", "outer"]
    assert (outer.seen, first.seen, second.seen) == (3, 1, 1)


def test_cors_does_not_open_the_server(tmp_path: Any) -> None:
    """The page may read why it is refused; `--allow-origin` alone lets it in."""
    origin = "https://app.example.com"
    config = ServerConfig(served_model_name="m", middleware="cors,gzip", options={ORIGINS: f'["{origin}"]'})
    layers = build_middleware(config, load_plugins().registry)
    asking = {"origin": origin, "access-control-request-method": "POST"}
    for allowed, status in (((), 403), ((origin,), 200)):
        with serving(
            EchoEngine(), byte_tokenizer(tmp_path), middleware_objects=layers, allow_origin=allowed
        ) as served:
            url = served.url + "/v1/completions"
            preflight = httpx.options(url, headers=asking)
            reply = httpx.post(url, headers={"origin": origin}, json=BODY)
            foreign = httpx.post(url, headers={"origin": "https://evil.example"}, json=BODY)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, origin)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, origin)
        assert foreign.status_code == 403
        assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize(
    ("chosen", "options", "why"),
    [
        ("none", {ORIGINS: '["*"]'}, "no middleware 'cors' is chosen"),
        ("cors", {}, "cors allows no origin"),
        ("cors", {ORIGINS: '["https://a.example/x"]'}, "is not an origin"),
        ("cors", {ORIGINS: '["*", "https://a.example"]'}, "is not an origin"),
        ("cors", {ORIGINS: '["null"]'}, "is not an origin"),
        ("gzip,cors", {ORIGINS: '["*"]'}, "write 'cors' first"),
        ("gzip,gzip", {}, "named twice"),
        ("gzi", {}, "unknown middleware 'gzi'"),
        (
            "gzip",
            {"middleware.gzip.level": 10},
            "middleware.gzip.level is 10; it must be a whole number, 1 to 9",
        ),
    ],
)
def test_what_cannot_work_is_refused(chosen: str, options: dict[str, Any], why: str) -> None:
    config = ServerConfig(served_model_name="m", middleware=chosen, options=options)
    with pytest.raises(ConfigError, match=why):
        build_middleware(config, load_plugins().registry)


def test_the_ledger_has_chosen_middleware() -> None:
    registry = load_plugins().registry
    build_middleware(ServerConfig(served_model_name="m", middleware="gzip"), registry)
    assert isinstance(registry.ledger, ComponentLedger)
    assert [use.name for use in registry.ledger.uses()] == ["gzip"]
