"""The kit of authenticators says what is wrong with the headers that its author calls valid."""

from __future__ import annotations

import pytest

from llmfw.core import Authenticator, Credentials, Refusal
from llmfw.core.testing import AuthenticatorTests


class Refusing(Authenticator):
    """Knows no token, and refuses all that starts with "old"."""

    async def authenticate(self, credentials: Credentials) -> Refusal | None:
        return Refusal("the token has expired") if (credentials.bearer() or "").startswith("old") else None


@pytest.mark.parametrize(
    ("token", "says"),
    [("other", "does not know the headers of `valid`: are they expired"), ("old", "the token has expired")],
)
def test_unknown_valid_headers_are_explained(token: str, says: str) -> None:
    valid = (("authorization", f"Bearer {token}"),)
    with pytest.raises(AssertionError, match=says):
        AuthenticatorTests().test_a_known_client_is_recognized(Refusing(Refusing.Options()), valid)
