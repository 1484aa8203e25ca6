"""The authenticator `jwt`: `Authorization: Bearer TOKEN`, where TOKEN is a signed JSON web token."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Literal

import jwt

from llmfw.core import SCOPES, Authenticator, ConfigError, Credentials, Principal, Refusal, TenantLimits

MIN_SECRET_BYTES = 32  # as many as a digest of HS256 has, by RFC 7518
MAX_KEPT_S = 300.0  # a token that is revoked passes no longer than this
MAX_LIMIT = 10**12  # the largest that llmfw takes

_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_TENANT = re.compile(r"[\x21-\x7e]{1,128}")


class JsonWebTokens(Authenticator):
    """Takes tokens that one key has signed, for one audience, from one issuer, that have not expired."""

    class Options(Authenticator.Options, frozen=True):
        """
        Attributes:
            key_file: file with the secret (HS256) or the public key as PEM (RS256).
            algorithm: algorithm of the signatures. A token with another one, such as "none", is refused.
            audience: what `aud` must contain.
            issuer: what `iss` must be.
            tenant_claim: claim with the tenant's name.
            admin_claim: claim that must be `true` for an administrator; "" for no administrators.
            scope_claim: claim with the tenant's scopes, separated by spaces, such as "scope" (RFC 8693, RFC 9068).
                Words that are not scopes of llmfw, such as "openid", are other servers'; "" for all scopes.
            limits_claim: claim with the tenant's limits, an object such as {"requests_per_minute": 60}, whose names are
                those of `TenantLimits`. A token without the claim has none; "" for no limits in tokens.
            leeway_s: seconds by which clocks may differ.
        """

        key_file: str = ""
        algorithm: Literal["HS256", "RS256"] = "HS256"
        audience: str = ""
        issuer: str = ""
        tenant_claim: str = "sub"
        admin_claim: str = ""
        scope_claim: str = ""
        limits_claim: str = ""
        leeway_s: float = 5.0

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        for name in ("key_file", "audience", "issuer", "tenant_claim"):
            if not getattr(options, name):
                raise ConfigError(f"jwt needs -o authenticator.jwt.{name}=VALUE")
        try:
            self._key = Path(options.key_file).expanduser().read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"jwt cannot read {options.key_file!r}: {error.strerror}") from error
        is_pem = self._key.startswith(b"-----BEGIN ")
        if options.algorithm == "HS256" and (is_pem or len(self._key) < MIN_SECRET_BYTES):
            raise ConfigError(
                f"jwt: {options.key_file!r} is not a secret of {MIN_SECRET_BYTES} bytes or more; for a public key "
                "give -o authenticator.jwt.algorithm=RS256"
            )
        if options.algorithm == "RS256" and (not is_pem or b"PRIVATE" in self._key):
            raise ConfigError(f"jwt: {options.key_file!r} is not a public key in PEM, which RS256 needs")

    async def authenticate(self, credentials: Credentials) -> Principal | Refusal | None:
        token = credentials.bearer()
        if token is None or not _TOKEN.fullmatch(token):
            return None  # another kind of credentials
        try:
            claims = self._claims(token)
        except jwt.ExpiredSignatureError:
            return Refusal("the token has expired; get a new one")
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError):
            return Refusal("the token is not valid for this server")
        return self._principal(claims)

    def _claims(self, token: str) -> dict[str, Any]:
        return jwt.decode(
            token,
            self._key,
            algorithms=[self.options.algorithm],
            audience=self.options.audience,
            issuer=self.options.issuer,
            leeway=self.options.leeway_s,
            options={"require": ["exp", "aud", "iss", self.options.tenant_claim]},
        )

    def _principal(self, claims: dict[str, Any]) -> Principal | Refusal:
        longest = time.time() + MAX_KEPT_S
        expires_at = min(min(int(claims["exp"]), longest) + self.options.leeway_s, longest)
        if self.options.admin_claim and claims.get(self.options.admin_claim) is True:
            return Principal(is_admin=True, expires_at=expires_at)
        tenant = claims[self.options.tenant_claim]
        if not (isinstance(tenant, str) and _TENANT.fullmatch(tenant)):
            return Refusal(f"the token's claim {self.options.tenant_claim!r} names no tenant")
        scopes = None
        if self.options.scope_claim:
            claimed = claims.get(self.options.scope_claim)
            if not isinstance(claimed, str):
                return Refusal(f"the token's claim {self.options.scope_claim!r} names no scopes")
            scopes = frozenset(claimed.split(" ")).intersection(SCOPES)
        limits = self._limits(claims)
        if isinstance(limits, Refusal):
            return limits
        return Principal(tenant=tenant, scopes=scopes, limits=limits, expires_at=expires_at)

    def _limits(self, claims: dict[str, Any]) -> TenantLimits | Refusal | None:
        name = self.options.limits_claim
        claimed = claims.get(name) if name else None
        if claimed is None:
            return None
        if not (isinstance(claimed, dict) and claimed.keys() <= set(TenantLimits.__struct_fields__)):
            return Refusal(f"the token's claim {name!r} is not an object of limits")
        if not all(type(limit) is int and 1 <= limit <= MAX_LIMIT for limit in claimed.values()):
            return Refusal(
                f"the token's claim {name!r} has a limit that is not a whole number from 1 to {MAX_LIMIT}"
            )
        return TenantLimits(**claimed)
