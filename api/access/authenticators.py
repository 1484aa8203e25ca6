"""Asks plugins' authenticators which client sent a request. A failure never lets a request pass."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmfw.core.base.bare_traceback import bare_traceback
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ComponentError, ComponentFailedError, ConfigError, OverloadedError
from llmfw.core.base.log import SEVERAL_LINES
from llmfw.core.interfaces.authenticator import Authenticator, Credentials, Principal, Refusal
from llmfw.core.plugin.asking import WrongAnswerError
from llmfw.core.plugin.authenticator_answer import check_answer
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

_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


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

    def __bool__(self) -> bool:
        return bool(self._authenticators)

    def header_names(self) -> list[str]:
        """Return the names of the headers that any of them reads, sorted."""
        return sorted({name for each in self._authenticators for name in each.component.header_names})

    async def ask(self, headers: Iterable[tuple[bytes, bytes]]) -> Known | Refusal | None:
        """Return the client that sent these headers, a refusal, or None if no authenticator knows the client.

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
        """Ask one authenticator. Keeps a principal until it expires, if it has an expiry time."""
        answer = await self._answer(each, credentials)
        try:
            check_answer(answer)
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
        """Wait for the answer of an authenticator. If it ignores its cancellation, leave it running."""
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
        ConfigError: an authenticator is unknown or cannot work; an option is wrong, or belongs to an
            authenticator that is not chosen; two authenticators have the same name; or the only API key has
            no name.
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
    """Return an authenticator's answer, or the exception it raised.

    Exceptions are returned, because a SystemExit raised in a task would end the process.
    """
    try:
        return await component.authenticate(credentials), None
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is logged
        raise_if_process_ends(error)
        return None, contained(error)


def _known(each: InUse, principal: Principal) -> Known:
    """Return a principal with the server's name for it. No API key's name has a "/"."""
    tenant = ADMIN if principal.is_admin else f"{each.calls.entry.name}/{principal.tenant}"
    return Known(tenant, principal.scopes, principal.limits)


def _failed(each: InUse, error: BaseException) -> ComponentFailedError:
    """Log a failure without messages, which may quote the credentials; return the error for the client."""
    each.calls.failures += 1
    entry = each.calls.entry
    reason = str(error) if isinstance(error, WrongAnswerError) else type(error).__name__
    # Neither the entry nor a bare traceback has text of clients, so line breaks need no escape.
    text = f"{entry} failed in authenticate(): {reason}\n{bare_traceback(error)}".replace("\n", "\n  ")
    logger.error("%s", text, extra=SEVERAL_LINES)
    return ComponentFailedError(f"{entry.spoken} failed on this request; the server's log says why")
