"""Whether a name says that a value is a secret, which is neither shown nor logged."""

from __future__ import annotations

import re

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|HEADERS|DSN", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Return whether the name of a variable or an option says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def is_secret_option(key: str) -> bool:
    """Return whether an option of a component of any kind, such as "observer.x.token", is a secret."""
    return names_secret(key.rpartition(".")[2])
