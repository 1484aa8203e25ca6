"""Authenticators that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from llmfw.core import Authenticator, Credentials, Principal, Refusal, TenantLimits
from llmfw.core.testing import AuthenticatorTests

TOKEN = "Alice-0123456789-abcdefg"
VALID_UNTIL = time.time() + 1200


class Broken(Authenticator):
    """Knows one token, and does one thing wrong."""

    async def authenticate(self, credentials: Credentials) -> Any:
        return self.known(credentials.bearer() or "")

    def known(self, token: str) -> Any:
        return Principal(tenant="alice") if token == TOKEN else None


class CapitalNames(Broken):
    header_names = ("Authorization",)


class LetsNobodyPass(Broken):
    async def authenticate(self, credentials: Credentials) -> Any:
        return self.known(credentials.bearer() or "") if credentials.headers else Principal(tenant="guest")


class TrustsUnsigned(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="admin") if token.startswith("eyJ") else super().known(token)


class ReadsAscii(Broken):
    def known(self, token: str) -> Any:
        token.encode("ascii")
        return super().known(token)


class ReturnsTrue(Broken):
    def known(self, token: str) -> Any:
        return token == TOKEN


class AlreadyExpired(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", expires_at=time.time() - 1) if token == TOKEN else None


class ExpiresInMilliseconds(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", expires_at=1000 * (time.time() + 60)) if token == TOKEN else None


class GivesATupleOfScopes(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", scopes=()) if token == TOKEN else None  # type: ignore[arg-type]


class ComparesStart(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice") if token.startswith(TOKEN) else None


class IgnoresCase(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice") if token.lower() == TOKEN.lower() else None


class TakesOneOfTwo(Broken):
    async def authenticate(self, credentials: Credentials) -> Any:
        return next(
            (self.known(TOKEN) for _, value in credentials.headers if value == f"Bearer {TOKEN}"), None
        )


class SharesTheToken(Broken):
    async def authenticate(self, credentials: Credentials) -> Any:
        self.token = credentials.bearer() or ""
        await asyncio.sleep(0.001)
        return self.known(self.token)


class SharesTheClient(Broken):
    """Takes any tenant's name before the secret, and keeps it where another request overwrites it."""

    async def authenticate(self, credentials: Credentials) -> Any:
        token = credentials.bearer() or ""
        self.tenant = token.partition("-")[0] or "nobody"
        await asyncio.sleep(0)
        return Principal(tenant=self.tenant) if token == TOKEN else None


class KeepsAnHourLonger(Broken):
    def known(self, token: str) -> Any:
        expiry = VALID_UNTIL
        if token != TOKEN or time.time() >= expiry:
            return None
        return Principal(tenant="alice", expires_at=expiry + 3600)


class IgnoresExpiry(Broken):
    def known(self, token: str) -> Any:
        if token != TOKEN:
            return None
        return Principal(tenant="alice", expires_at=min(VALID_UNTIL, datetime.now(UTC).timestamp() + 60))


class KeepsEveryToken(Broken):
    tokens: ClassVar[list[str]] = []

    def known(self, token: str) -> Any:
        self.tokens.append(token)
        return super().known(token)


class Blocks(Broken):
    async def authenticate(self, credentials: Credentials) -> Any:
        time.sleep(0.01)  # noqa: ASYNC251 - the defect
        return self.known(credentials.bearer() or "")


class QuotesTheToken(Broken):
    def known(self, token: str) -> Any:
        return super().known(token) or Refusal(f"unknown token {ascii(token)[:250]}")


class LogsTheToken(Broken):
    def known(self, token: str) -> Any:
        logging.getLogger("broken").debug("token %r", token)
        return super().known(token)


class ListsScopes(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", scopes=["models"]) if token == TOKEN else None  # type: ignore[arg-type]


class InventsScopes(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", scopes=frozenset({"openid"})) if token == TOKEN else None


class LimitsAdministrators(Broken):
    def known(self, token: str) -> Any:
        return Principal(is_admin=True, scopes=frozenset({"models"})) if token == TOKEN else None


class ForgetsScopes(Broken):
    is_asked = False

    def known(self, token: str) -> Any:
        if token != TOKEN:
            return None
        self.is_asked = not self.is_asked
        return Principal(tenant="alice", scopes=frozenset({"models"}) if self.is_asked else None)


class NamesLimits(Broken):
    def known(self, token: str) -> Any:
        limits: Any = {"requests_per_minute": 60}
        return Principal(tenant="alice", limits=limits) if token == TOKEN else None


class LimitsToNothing(Broken):
    def known(self, token: str) -> Any:
        return Principal(tenant="alice", limits=TenantLimits(max_requests=0)) if token == TOKEN else None


class LimitsInFractions(Broken):
    def known(self, token: str) -> Any:
        limits = TenantLimits(tokens_per_minute=1e6)  # type: ignore[arg-type]
        return Principal(tenant="alice", limits=limits) if token == TOKEN else None


class GivesAdministratorsARate(Broken):
    def known(self, token: str) -> Any:
        limits = TenantLimits(requests_per_minute=60)
        return Principal(is_admin=True, limits=limits) if token == TOKEN else None


class ForgetsLimits(Broken):
    is_asked = False

    def known(self, token: str) -> Any:
        if token != TOKEN:
            return None
        self.is_asked = not self.is_asked
        return Principal(tenant="alice", limits=TenantLimits(max_requests=4) if self.is_asked else None)


class OfKind(AuthenticatorTests):
    kind: type[Broken]

    @pytest.fixture
    def authenticator(self) -> Authenticator:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def valid(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {TOKEN}"),)


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = type(f"Test{_kind.__name__}", (OfKind,), {"kind": _kind})
