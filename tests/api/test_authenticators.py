"""`--authenticators`: who passes, whose data are whose, and that no failure lets a request through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.api.access.authenticators import Authenticators, InUse, build_authenticators
from llmfw.api.access.principals import MAX_KEPT, KeptPrincipals, Known
from llmfw.core import (
    Authenticator,
    ConfigError,
    Credentials,
    OverloadedError,
    Principal,
    Refusal,
    TenantLimits,
)
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.log import LineHandler
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

from ..crash.server import echo_server
from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

ALICE, ROOT = "alice-0123456789abcdef", "root-0123456789abcdef"
BODY: dict[str, Any] = {"model": SERVED_NAME, "prompt": "Hello"}


class Odd(Authenticator):
    """Does what the token says: "user:NAME" is a tenant, "admin" the administrator."""

    def __init__(self) -> None:
        super().__init__(self.Options())
        self.asked = 0

    async def authenticate(self, credentials: Credentials) -> Principal | Refusal | None:
        self.asked += 1
        token = credentials.bearer() or ""
        kind, _, name = token.partition(":")
        if kind == "user":
            return Principal(tenant=name)
        if kind == "short":
            return Principal(tenant=name, expires_at=time.time() + 0.3)
        return await getattr(self, kind, self.unknown)(token)

    async def unknown(self, token: str) -> None:
        return None

    async def admin(self, token: str) -> Principal:
        return Principal(is_admin=True)

    async def refused(self, token: str) -> Refusal:
        return Refusal("the token is of another audience")

    async def expired(self, token: str) -> Principal:
        return Principal(tenant="alice", expires_at=time.time() - 1)

    async def raises(self, token: str) -> None:
        raise ValueError(f"cannot read {token!r}") from KeyError(token)

    async def panics(self, token: str) -> None:
        raise SystemExit(3)

    async def cancels(self, token: str) -> None:
        raise asyncio.CancelledError

    async def overloads(self, token: str) -> None:
        raise OverloadedError("the directory is busy")

    async def hangs(self, token: str) -> Principal:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return Principal(tenant="late")

    async def true(self, token: str) -> Any:
        return True

    async def text(self, token: str) -> Any:
        return "alice"

    async def both(self, token: str) -> Any:
        return Principal(tenant="alice", is_admin=True)

    async def nobody(self, token: str) -> Any:
        return Principal()

    async def spaced(self, token: str) -> Any:
        return Principal(tenant="a b\nid=1")

    async def truthy(self, token: str) -> Any:
        return Principal(is_admin=1)  # type: ignore[arg-type]

    async def forever(self, token: str) -> Any:
        return Principal(tenant="a", expires_at=float("inf"))

    async def milliseconds(self, token: str) -> Any:
        return Principal(tenant="a", expires_at=1000 * time.time())

    async def huge(self, token: str) -> Any:
        return Principal(tenant="a", expires_at=10**5000)

    async def listed(self, token: str) -> Any:
        return Principal(tenant="a", scopes=["models"])  # type: ignore[arg-type]

    async def unheard(self, token: str) -> Any:
        return Principal(tenant="a", scopes=frozenset({"models", "everything"}))

    async def numbered(self, token: str) -> Any:
        return Principal(tenant="a", scopes=frozenset({1}))  # type: ignore[arg-type]

    async def lesser(self, token: str) -> Any:
        return Principal(is_admin=True, scopes=frozenset({"models"}))

    async def boundless(self, token: str) -> Any:
        return Principal(tenant="a", limits={"max_requests": 3})  # type: ignore[arg-type]

    async def halved(self, token: str) -> Any:
        return Principal(tenant="a", limits=TenantLimits(max_requests=0.5))  # type: ignore[arg-type]

    async def nothing(self, token: str) -> Any:
        return Principal(tenant="a", limits=TenantLimits(tokens_per_minute=0))

    async def yes(self, token: str) -> Any:
        return Principal(tenant="a", limits=TenantLimits(max_queued_requests=True))

    async def restrained(self, token: str) -> Any:
        return Principal(is_admin=True, limits=TenantLimits(max_requests=3))

    async def unsaid(self, token: str) -> Any:
        return Refusal("x" * 5_000)


def in_use(component: Authenticator, name: str = "odd") -> InUse:
    return InUse(component, ComponentCalls(Entry("authenticator", name, "x:Y", "odd_plugin", "odd", "1.0")))


@pytest.fixture(scope="module")
def odd() -> InUse:
    return in_use(Odd())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, odd: InUse) -> Iterator[Served]:
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path_factory.mktemp("model")),
        api_key=(("alice", ALICE),),
        authenticators="odd",
        authenticator_objects=Authenticators([odd], 0.3),
    ) as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def asked(served: Served, token: str, path: str = "/v1/completions") -> httpx.Response:
    return httpx.post(served.url + path, headers=bearer(token), json=BODY, timeout=20)


@pytest.mark.parametrize(
    "what",
    [
        "raises",
        "panics",
        "cancels",
        "true",
        "text",
        "both",
        "nobody",
        "spaced",
        "truthy",
        "forever",
        "milliseconds",
        "unsaid",
        "listed",
        "unheard",
        "numbered",
        "lesser",
        "boundless",
        "halved",
        "nothing",
        "yes",
        "restrained",
    ],
)
def test_a_failure_lets_no_request_pass(
    served: Served, odd: InUse, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    token, failures = f"{what}:verysecret0123", odd.calls.failures
    reply = asked(served, token)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "plugin_error")
    assert "authenticator 'odd' of plugin 'odd_plugin'" in reply.json()["error"]["message"]
    assert odd.calls.failures == failures + 1
    assert "failed in authenticate()" in caplog.text
    assert "verysecret" not in caplog.text + reply.text
    assert asked(served, "user:bob").status_code == 200


def test_a_client_cannot_steer_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Neither hide text by sending it, nor show its own."""
    asked(served, "raises:File line authenticate ValueError eyJhbGciOi.eyJ")
    asked(served, "raises:other")
    first, second = (LineHandler().format(record) for record in caplog.records if record.levelname == "ERROR")
    assert first == second
    assert first.splitlines()[1] == "  Traceback (most recent call last):"
    assert f'File "{__file__}", line' in first


@pytest.mark.parametrize(
    ("token", "status", "message"),
    [
        (ALICE, 200, ""),
        ("user:bob", 200, ""),
        ("refused", 401, "another audience"),
        ("expired", 401, "have expired"),
        ("unknown", 401, "neither an API key nor an authenticator of this server accepts these"),
        ("overloads", 503, "directory is busy"),
        ("hangs", 503, "authenticator 'odd' of plugin 'odd_plugin' did not answer within 0.3 s"),
        ("user:" + "x" * 17_000, 401, "more than 16384"),
    ],
)
def test_only_a_principal_passes(served: Served, token: str, status: int, message: str) -> None:
    reply = asked(served, token)
    assert reply.status_code == status
    assert message in reply.text


def test_refusals_have_the_format_of_the_path(served: Served) -> None:
    assert asked(served, "refused", "/v1/messages").json()["error"]["type"] == "authentication_error"
    assert asked(served, "raises", "/v1/messages").json()["error"]["type"] == "api_error"


def test_repeated_headers_are_no_credentials(served: Served) -> None:
    assert Credentials((("authorization", "Bearer a"), ("authorization", "Bearer b"))).bearer() is None
    headers = [("authorization", "Bearer user:bob"), ("authorization", "Bearer user:eve")]
    assert httpx.get(served.url + "/v1/models", headers=headers).status_code == 400


def test_tenants_are_separate(served: Served) -> None:
    """The tenant "alice" of the authenticator is not the API key "alice", and neither is an administrator."""
    made = {}
    for token in (ALICE, "user:alice", "user:bob"):
        file = {"file": ("a.jsonl", b"{}\n")}
        reply = httpx.post(
            served.url + "/v1/files", headers=bearer(token), data={"purpose": "batch"}, files=file
        )
        made[token] = reply.json()["id"]
    for token, id in made.items():
        listed = httpx.get(served.url + "/v1/files", headers=bearer(token)).json()["data"]
        assert [each["id"] for each in listed] == [id]
        assert httpx.get(served.url + "/admin/cache", headers=bearer(token)).status_code == 403
    everything = httpx.get(served.url + "/v1/files", headers=bearer("admin")).json()["data"]
    assert {each["id"] for each in everything} >= set(made.values())
    assert httpx.get(served.url + "/admin/cache", headers=bearer("admin")).status_code == 200


def test_an_expired_answer_is_asked_again(served: Served, odd: InUse) -> None:
    component: Any = odd.component
    before = component.asked
    assert [asked(served, "short:ann").status_code for _ in range(2)] == [200, 200]
    assert component.asked == before + 1
    time.sleep(0.35)
    assert asked(served, "short:ann").status_code == 200
    assert component.asked == before + 2
    assert asked(served, "short:eve").status_code == 200
    assert component.asked == before + 3


def test_a_request_without_credentials_learns_the_headers(served: Served) -> None:
    reply = httpx.post(served.url + "/v1/completions", json=BODY)
    assert reply.status_code == 401
    assert (
        "credentials are needed; send them in the header 'authorization'" in reply.json()["error"]["message"]
    )


def test_without_keys_nobody_unknown_passes(tmp_path: Any) -> None:
    options: dict[str, Any] = {
        "authenticators": "odd",
        "authenticator_objects": Authenticators([in_use(Odd())]),
    }
    with serving(EchoEngine(), byte_tokenizer(tmp_path), **options) as served:
        for path in ("/v1/models", "/v1/files", "/admin/cache", "/metrics"):
            assert httpx.get(served.url + path).status_code == 401
        assert httpx.get(served.url + "/health").status_code == 200
        assert httpx.get(served.url + "/v1/files", headers=bearer("user:bob")).status_code == 200
        assert httpx.get(served.url + "/admin/cache", headers=bearer("user:bob")).status_code == 403


class Broken(Odd):
    async def authenticate(self, credentials: Credentials) -> Principal | Refusal | None:
        self.asked += 1
        raise OSError("the issuer is away")


def test_a_broken_authenticator_locks_no_key_out(tmp_path: Path) -> None:
    broken = in_use(Broken())
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path),
        api_key=(("alice", ALICE),),
        admin_api_key=ROOT,
        authenticators="odd",
        authenticator_objects=Authenticators([broken]),
    ) as served:
        assert asked(served, "user:bob").status_code == 500
        assert asked(served, ALICE).status_code == 200
        assert httpx.get(served.url + "/admin/cache", headers=bearer(ROOT)).status_code == 200
        assert broken.calls.count == 1


async def test_the_first_that_knows_decides() -> None:
    both = Authenticators([in_use(Odd(), "first"), in_use(Odd(), "second")])
    assert await both.ask([(b"authorization", b"Bearer user:ann")]) == Known("first/ann")
    assert await both.ask([(b"authorization", b"Bearer unknown")]) is None
    assert await both.ask([]) is None


def test_kept_answers_end_by_either_clock() -> None:
    now, clock = 1000.0, 50.0
    kept = KeptPrincipals(lambda: now, lambda: clock)
    ann = Known("odd/ann", frozenset({"models"}))
    kept.keep(b"a", ann, 1010.0)
    assert kept.find(b"a") == ann
    now, clock = 900.0, 61.0  # the clock of the day was set back
    assert kept.find(b"a") is None
    for i in range(MAX_KEPT + 5):
        kept.keep(b"%d" % i, ann, 2000.0)
    assert kept.find(b"0") is None
    assert kept.find(b"%d" % MAX_KEPT) == ann


def test_credentials_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    credentials = Credentials((("authorization", "Bearer secret"),))
    logging.getLogger("llmfw").warning("%s %r", credentials, credentials)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("chosen", "fields", "why"),
    [
        ("nobody", {}, "unknown authenticator"),
        ("none", {"options": {"authenticator.jwt.key": "x"}}, "is chosen"),
    ],
)
def test_what_cannot_work_is_refused(chosen: str, fields: dict[str, Any], why: str) -> None:
    config = ServerConfig(served_model_name="m", authenticators=chosen, **fields)
    with pytest.raises(ConfigError, match=why):
        build_authenticators(config, load_plugins().registry)


PLUGIN = """
from llmfw.core import Authenticator, Principal

class Staff(Authenticator):
    class Options(Authenticator.Options, frozen=True):
        token: str

    async def authenticate(self, credentials):
        return Principal(tenant="ann") if credentials.bearer() == self.options.token else None

@hookimpl
def register_authenticators(register):
    register("staff", f"{__name__}:Staff")
"""


def test_a_server_asks_an_installed_authenticator(
    tmp_path: Path, install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_plugin("staff", PLUGIN)))
    options = (
        "--authenticators",
        "staff",
        "-o",
        "authenticator.staff.token=t0ken-of-ann",
        "--middleware",
        "gzip",
    )
    with echo_server(tmp_path / "served", *options) as server:
        url = f"{server.url}/v1/models"
        statuses = [httpx.get(url, headers=bearer(token)).status_code for token in ("x", "y", "t0ken-of-ann")]
        metrics = httpx.get(f"{server.url}/metrics", headers=bearer("t0ken-of-ann"), timeout=60).text
        server.stop()
        log = server.log.read_text()
    assert statuses == [401, 401, 200]
    assert 'llmfw_plugin_calls_total{kind="authenticator",name="staff",plugin="staff"} 4.0' in metrics
    assert "tenant=staff/ann" in log
