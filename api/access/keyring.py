"""The server's API keys, from its settings and from key files, which are reloaded when they change."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from llmfw.api.server.file_watch import FileWatch
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.user_path import user_path
from llmfw.core.interfaces.tenant_limits import TenantLimits

from .key_file import read_keys
from .key_table import ADMIN, Keys, UserKey
from .key_text import digest_of
from .principals import Known

logger = logging.getLogger(__name__)


class Keyring:
    """The currently valid API keys.

    Args:
        config: server settings with keys, or with paths of key files.

    Attributes:
        has_keys: whether clients must send a key, or other credentials.
        has_others: whether authenticators of plugins know further tenants.
        has_admin: whether there is an admin key.

    Raises:
        ConfigError: a key or a key file is invalid, or the administrator's key has scopes.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._users = [UserKey(name, digest_of(key)) for name, key in config.api_key]
        self._admins = [digest_of(config.admin_api_key)] if config.admin_api_key else []
        self._user_file = _path(config.api_key_file)
        self._admin_file = _path(config.admin_api_key_file)
        self.has_others = config.authenticators != "none"
        self.has_keys = bool(self._users or self._user_file) or self.has_others
        self.has_admin = bool(self._admins or self._admin_file)
        files = [path for path in (self._user_file, self._admin_file) if path is not None]
        self._watch = FileWatch("API keys", files, partial(self._read, may_wait=False), self._use)
        self._keys = self._read()

    @property
    def tenants(self) -> frozenset[str]:
        """Tenants that have a key now, without the administrator."""
        return self._keys.tenants

    @property
    def only_tenant(self) -> str | None:
        """The tenant of all keys; None if there are several tenants, or could be."""
        return next(iter(self.tenants)) if len(self.tenants) == 1 and not self.has_others else None

    @property
    def has_tenants(self) -> bool:
        """Whether some clients have a name, by their key or by an authenticator."""
        return any(self.tenants) or self.has_others

    @property
    def has_files(self) -> bool:
        """Whether some keys are in files."""
        return bool(self._watch.paths)

    def client_of(self, key: bytes) -> Known | None:
        """Return the client whose key this is, with its scopes; None if the key is not valid."""
        return self._keys.client_of(key)

    def tenant_of(self, key: bytes) -> str | None:
        """Return the tenant of a client's key; None if the key is not valid."""
        return self._keys.tenant_of(key)

    def limits_of(self, tenant: str) -> TenantLimits | None:
        """Return the limits of a tenant's keys; None if the tenant has no limits or no key."""
        return self._keys.limits_of(tenant)

    def is_admin(self, tenant: str, scopes: frozenset[str] | None) -> bool:
        """Return whether a client is an administrator.

        Without an admin key, a single tenant is the administrator. If there are several tenants, the server
        has no administrator, because the prefix cache and the traces show what each tenant has sent.

        Args:
            scopes: scopes of the client; None: all. A client with limited scopes is not an administrator,
                even if the other tenants lose their keys while its request runs.
        """
        if tenant == ADMIN:
            return True
        is_alone = self.has_keys and not self.has_admin and tenant == self.only_tenant
        return is_alone and scopes is None

    def start(self) -> None:
        """Start to reload key files when they change.

        If a file is invalid, log the error and keep the old keys.
        """
        self._watch.start()

    def read_again(self) -> None:
        """Reload the key files even if they have not changed, and log the result.

        If the server is still starting, they are reloaded once it is ready.
        """
        if self._watch.paths:
            self._watch.read_again()
        else:
            logger.info("There is no file of API keys to read again; the keys of the settings stay")

    async def reload(self) -> None:
        """Reload the key files now; if a file is invalid, keep the old keys and raise ConfigError."""
        await self._watch.reload()

    async def close(self) -> None:
        """Stop reloading the key files."""
        await self._watch.close()

    def _use(self, keys: Keys) -> str:
        self._keys = keys
        return f"tenants: {len(keys.tenants)}"

    def _read(self, *, may_wait: bool = True) -> Keys:
        """Return the keys of the settings and of the key files together.

        Args:
            may_wait: as in `read_keys`.

        Raises:
            ConfigError: as in `read_keys` and `Keys`; or a key with scopes belongs to the administrator.
        """
        users, admins = self._users, self._admins
        warnings: Iterable[str] = ()
        if self._user_file is not None:
            lines = read_keys(self._user_file, named=True, may_wait=may_wait)
            users, warnings = [*users, *lines.keys], lines.warnings
        if self._admin_file is not None:
            lines = read_keys(self._admin_file, named=False, may_wait=may_wait)
            admins = [*admins, *(key.digest for key in lines.keys)]
            warnings = (*warnings, *lines.warnings)
        keys = Keys(users, admins)
        self._check_administrator(keys)
        for warning in warnings:
            logger.warning("%s", warning)
        return keys

    def _check_administrator(self, keys: Keys) -> None:
        """Raise ConfigError if the only tenant would be the administrator, but has a key with scopes."""
        if keys.has_scopes and len(keys.tenants) == 1 and not (self.has_admin or self.has_others):
            raise ConfigError(
                f"a key of tenant {next(iter(keys.tenants))!r} has scopes, but the only tenant of a server without an "
                "admin key is the administrator, who has all; add an admin key with --admin-api-key-file FILE"
            )


def _path(text: str | None) -> Path | None:
    return None if text is None else user_path(text, "the key file")
