"""Asks the authenticators of plugins who sends a request. Nothing that goes wrong lets a request pass."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmfw.core.base.bare_traceback import bare_traceback
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError, ComponentFailedError, ConfigError, OverloadedError
from llmfw.core.interfaces.authenticator import Authenticator, Credentials, Principal, Refusal
from llmfw.core.interfaces.scopes import SCOPES
from llmfw.core.interfaces.tenant_limits import MAX_LIMIT, TenantLimits, wrong_limit
from llmfw.core.plugin.calls import EXPECTED_ERRORS, ComponentCalls
from llmfw.core.plugin.choice import choose
from llmfw.core.plugin.containment import contained, raise_if_process_ends
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registry import Entry, Registry

from .key_table import ADMIN
from .principals import KeptPrincipals, Known, digest_of

logger = logging.getLogger(__name__)

KIND = "authenticator"
MAX_CREDENTIALS = 16 * 1024
"""Maximum size of the credentials of a request, in characters; authenticators do not see larger ones."""
MAX_MESSAGE = 300  # characters

_TENANT = re.compile(r"[\x21-\x7e]{1,128}")
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


class WrongAnswerError(Exception):
    """Raised for an answer of an authenticator that is none of those that it may give."""


@dataclass(frozen=True, slots=True)
class InUse:
    """An authenticator in use, and the record of its calls."""

    component: Authenticator
    calls: ComponentCalls
    kept: KeptPrincipals = field(default_factory=KeptPrincipals)


class Authenticators:
    """The authenticators of a server, in the order in which they are asked.

    Args:
        timeout_s: seconds within which each must answer.
    """

    def __init__(self, authenticators: Sequence[InUse] = (), timeout_s: float = 5.0) -> None:
        self._authenticators = authenticators
        self._timeout_s = timeout_s

    async def ask(self, headers: Iterable[tuple[bytes, bytes]]) -> Known | Refusal | None:
        """Return the client that sends a request with these headers, a refusal, or None if it is not recognized.

        Raises:
            ComponentFailedError: an authenticator failed.
            OverloadedError: an authenticator did not answer in time.
        """
        for each in self._authenticators:
            credentials = _credentials(headers, each.component.header_names)
            if sum(len(value) for _, value in credentials.headers) > MAX_CREDENTIALS:
                return Refusal(f"the credentials have more than {MAX_CREDENTIALS} characters")
            digest = digest_of(credentials)
            answer = each.kept.find(digest) or await self._ask(each, credentials, digest)
            if answer is not None:
                return answer
        return None

    async def _ask(self, each: InUse, credentials: Credentials, digest: bytes) -> Known | Refusal | None:
        """Ask one authenticator, and keep its answer if it may be kept."""
        answer = await self._answer(each, credentials)
        try:
            _check(answer)
        except WrongAnswerError as error:
            raise _failed(each, error) from None
        if not isinstance(answer, Principal):
            return answer
        if answer.expires_at is not None:
            expires_at = float(answer.expires_at)
            if each.kept.is_past(expires_at):
                return Refusal("the credentials have expired")
            each.kept.keep(digest, _known(each, answer), expires_at)
        return _known(each, answer)

    async def _answer(self, each: InUse, credentials: Credentials) -> Any:
        """Wait for the answer of an authenticator. One that ignores its cancellation is left behind."""
        each.calls.count += 1
        begun = time.perf_counter()
        task = asyncio.ensure_future(_outcome(each.component, credentials))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        finally:
            each.calls.seconds += time.perf_counter() - begun
            task.cancel()
        if not done:
            each.calls.failures += 1
            entry = each.calls.entry
            logger.error("%s did not answer within %g s", entry, self._timeout_s)
            raise OverloadedError(f"{entry.spoken} did not answer within {self._timeout_s:g} s; try again")
        answer, error = task.result()
        if isinstance(error, EXPECTED_ERRORS):
            raise error
        if error is not None:
            raise _failed(each, error) from None
        return answer


def build_authenticators(config: ServerConfig, registry: Registry) -> Authenticators:
    """Build the authenticators that `--authenticators` names.

    Raises:
        ConfigError: an authenticator is unknown or cannot work, an option is wrong, or is for one that is not
            chosen, two have one name, or the only API key has no name.
    """
    entries = choose(registry, KIND, config.authenticators).entries
    names = [name for entry in entries for name in (entry.name, entry.full_name)]
    refuse_options_of_others(KIND, names, config.options, "--authenticators NAME,NAME")
    if len({entry.name for entry in entries}) < len(entries):
        raise ConfigError(
            f"two authenticators of {config.authenticators!r} have one name, so that their tenants could be "
            "mistaken for each other; choose one of them"
        )
    if entries and any(not name for name, _ in config.api_key):
        raise ConfigError("with --authenticators, each API key needs a name: --api-key NAME=KEY")
    found = []
    for entry in entries:
        component = entry.build(entry.load(), entry.build_options(config.options))
        _check_names(entry, component.header_names)
        found.append(InUse(component, registry.ledger.of(entry)))
    return Authenticators(found, config.authentication_timeout)


def _check_names(entry: Entry, names: Any) -> None:
    if not (
        isinstance(names, tuple) and names and all(isinstance(n, str) and _HEADER.fullmatch(n) for n in names)
    ):
        raise ComponentError(
            f"{entry}: header_names is {names!r:.80}; it must be a tuple of names in lower case"
        )


def _credentials(headers: Iterable[tuple[bytes, bytes]], names: Sequence[str]) -> Credentials:
    wanted = [(name.decode("latin-1").lower(), value) for name, value in headers]
    return Credentials(tuple((name, value.decode("latin-1")) for name, value in wanted if name in names))


async def _outcome(component: Authenticator, credentials: Credentials) -> tuple[Any, Exception | None]:
    """Return the answer of an authenticator, or what it raised: a SystemExit in a task would end the process."""
    try:
        return await component.authenticate(credentials), None
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is logged
        raise_if_process_ends(error)
        return None, contained(error)


def _known(each: InUse, principal: Principal) -> Known:
    """Return a principal with the server's name for it. No API key's name has a "/"."""
    tenant = ADMIN if principal.is_admin else f"{each.calls.entry.name}/{principal.tenant}"
    return Known(tenant, principal.scopes, principal.limits)


def _check(answer: object) -> None:
    """Raise WrongAnswerError for an answer that an authenticator may not give. The message has no values."""
    if isinstance(answer, Principal):
        _check_principal(answer)
    elif isinstance(answer, Refusal):
        message: object = answer.message
        if not isinstance(message, str) or len(message) > MAX_MESSAGE or not _is_text(message):
            raise WrongAnswerError(f"the message of a refusal is no text of at most {MAX_MESSAGE} characters")
    elif answer is not None:
        raise WrongAnswerError(
            f"it returned {type(answer).__name__} in place of a Principal, a Refusal or None"
        )


def _is_time(value: object) -> bool:
    """Return whether a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that is larger than any float
        return False


def _check_principal(principal: Principal) -> None:
    tenant: object = principal.tenant
    is_admin: object = principal.is_admin
    expires_at: object = principal.expires_at
    if not (isinstance(tenant, str) and isinstance(is_admin, bool)):
        raise WrongAnswerError("a principal's tenant must be a str, and is_admin a bool")
    if is_admin and tenant:
        raise WrongAnswerError("a principal is either the administrator or a tenant")
    if not is_admin and not _TENANT.fullmatch(tenant):
        raise WrongAnswerError(
            "a principal's tenant must have 1 to 128 printable ASCII characters without spaces"
        )
    if expires_at is not None and not _is_time(expires_at):
        raise WrongAnswerError("a principal's expires_at must be a finite number or None")
    _check_scopes(principal.scopes, is_admin=is_admin)
    _check_limits(principal.limits, is_admin=is_admin)


def _check_scopes(scopes: object, *, is_admin: bool) -> None:
    if scopes is None:
        return
    if is_admin:
        raise WrongAnswerError("an administrator has all scopes: the principal's scopes must be None")
    if not isinstance(scopes, frozenset) or not all(isinstance(each, str) for each in scopes):
        raise WrongAnswerError("a principal's scopes must be a frozenset of str, or None")
    if not scopes <= SCOPES.keys():
        raise WrongAnswerError(f"a principal's scopes must be among {', '.join(SCOPES)}")


def _check_limits(limits: object, *, is_admin: bool) -> None:
    if limits is None:
        return
    if is_admin:
        raise WrongAnswerError("an administrator has no limits: the principal's limits must be None")
    if not isinstance(limits, TenantLimits):
        raise WrongAnswerError("a principal's limits must be a TenantLimits or None")
    if name := wrong_limit(limits):
        raise WrongAnswerError(f"a principal's limits.{name} must be an int from 1 to {MAX_LIMIT}, or None")


def _is_text(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= char <= "\udfff" for char in text)


def _failed(each: InUse, error: BaseException) -> ComponentFailedError:
    """Log a failure without messages, which may quote the credentials; return the error for the client."""
    each.calls.failures += 1
    entry = each.calls.entry
    reason = str(error) if isinstance(error, WrongAnswerError) else type(error).__name__
    logger.error("%s failed in authenticate(): %s\n%s", entry, reason, bare_traceback(error))
    return ComponentFailedError(f"{entry.spoken} failed on this request; the server's log says why")
