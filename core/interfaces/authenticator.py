"""The interface of an authenticator: it turns the headers of a request into a principal.

An authenticator runs in the API process, on its event loop, before anything else reads the request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec

from .tenant_limits import TenantLimits


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request: either a tenant or the administrator.

    Attributes:
        tenant: name of the tenant, 1 to 128 printable ASCII characters without spaces. The server puts the
            authenticator's name before it, as in "jwt/alice", so that names of two authenticators differ.
            Like an API key, a tenant owns its files, batches and responses, and has its share of the engine.
        is_admin: whether the request has the rights of the admin key: /admin, and all that any tenant owns.
            `tenant` must then be "".
        expires_at: time in seconds since the epoch until which the server may keep this answer for the same
            headers; None: it asks again for each request. A time in the past counts as a refusal. A time
            after the year 9999 is an invalid answer, because it is probably in milliseconds.
        scopes: names of `SCOPES`: what the tenant may do; None: everything. A request for a route whose scope
            is missing gets a 403. Must be None for the administrator, who may do everything.
        limits: limits of the tenant; None: only the server's limits. They apply to all requests of the
            tenant, including batches, until a later principal of the tenant has other limits. Must be None
            for the administrator.
    """

    tenant: str = ""
    is_admin: bool = False
    expires_at: float | None = None
    scopes: frozenset[str] | None = None
    limits: TenantLimits | None = None


class Refusal(msgspec.Struct, frozen=True):
    """The credentials are this authenticator's own, but invalid: the client gets a 401.

    No further authenticator is asked. So return None, not a Refusal, for credentials that another one may know,
    such as a token of another issuer.

    Attributes:
        message: text for the client, of at most 300 characters. Must not contain the credentials.
    """

    message: str


class Credentials(msgspec.Struct, frozen=True):
    """The headers of a request that an authenticator declares in `header_names`. `repr` hides them.

    Attributes:
        headers: pairs of name, in lower case, and value, in the order of the request. Clients may repeat
            headers, and write anything into them.
    """

    headers: tuple[tuple[str, str], ...]

    def only(self, name: str) -> str | None:
        """Return the value of a header that occurs exactly once; None if it is missing or repeated."""
        found = [value for given, value in self.headers if given == name]
        return found[0] if len(found) == 1 else None

    def bearer(self) -> str | None:
        """Return TOKEN of `authorization: Bearer TOKEN`; None if there is none, or several such headers."""
        scheme, _, token = (self.only("authorization") or "").partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None

    def __repr__(self) -> str:
        return f"Credentials({', '.join(name for name, _ in self.headers)}: hidden)"


class Authenticator(ABC):
    """Recognizes clients by their headers. Chosen by `--authenticators NAME,NAME`.

    The server builds one object of each chosen class when it starts, before the model is loaded. A request
    passes if an API key of the server is valid, or if an authenticator returns a principal.

    Attributes:
        header_names: names of the headers that `authenticate` gets, in lower case. Its answer must depend on
            them alone, because it may be kept for requests with the same values.
    """

    header_names: ClassVar[tuple[str, ...]] = ("authorization",)

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o authenticator.NAME.key=value`. An authenticator with options
        overrides this."""

    def __init__(self, options: Options) -> None:
        """Prepare the authenticator, for example read a key. Raise ConfigError if it cannot work."""
        self.options = options

    @abstractmethod
    async def authenticate(self, credentials: Credentials) -> Principal | Refusal | None:
        """Return who sends a request; a refusal; or None for credentials of another kind.

        Called on the event loop, for many requests at once. It may wait, as for a network, but must not
        block. After `--authentication-timeout` it is cancelled, and the client gets a 503. After None, the
        server asks the next authenticator; if all return None, the client gets a 401. If it raises, the
        client gets a 500 that names the plugin. Only a `Principal` lets a request pass.
        """
