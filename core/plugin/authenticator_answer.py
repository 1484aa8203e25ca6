"""Checks the answers of authenticators: the principals and refusals of plugins, before anything uses them.

The server and the conformance tests use the same checks.
"""

from __future__ import annotations

import math
import re
from typing import TypeGuard

from llmfw.core.interfaces.authenticator import Principal, Refusal
from llmfw.core.interfaces.scopes import SCOPES
from llmfw.core.interfaces.tenant_limits import MAX_LIMIT, TenantLimits, wrong_limit

from .asking import WrongAnswerError

MAX_MESSAGE = 300  # characters
END_OF_9999 = 253_402_300_800
"""End of the year 9999, in seconds since the epoch. Any time since 1978 is larger in milliseconds."""

_TENANT = re.compile(r"[\x21-\x7e]{1,128}")


def check_answer(answer: object) -> None:
    """Check what `authenticate` returned.

    Raises:
        WrongAnswerError: an authenticator may not give this answer. The message has no values of it, which may
            quote the credentials.
    """
    if isinstance(answer, Principal):
        _check_principal(answer)
    elif isinstance(answer, Refusal):
        message: object = answer.message
        if not isinstance(message, str) or len(message) > MAX_MESSAGE or not _is_text(message):
            raise WrongAnswerError(
                f"the message of a refusal is not a text of at most {MAX_MESSAGE} characters"
            )
    elif answer is not None:
        raise WrongAnswerError(
            f"it returned {type(answer).__name__} in place of a Principal, a Refusal or None"
        )


def _is_time(value: object) -> TypeGuard[float]:
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
    if expires_at is not None and expires_at >= END_OF_9999:
        raise WrongAnswerError(
            "a principal's expires_at is beyond the year 9999; it must be in seconds since the epoch, not in "
            "milliseconds"
        )
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
