"""Decides which tenants' files, batches and responses a request may see."""

from __future__ import annotations

import logging

from llmfw.api.text.terms import key_name
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore

from .key_table import ADMIN
from .keyring import Keyring

logger = logging.getLogger(__name__)


class Ownership:
    """Decides which objects (files, batches, responses) a request may see. Others are treated as missing.

    - Without API keys, every request sees all objects.
    - With the admin key, a request sees all objects.
    - With another key, a request sees the objects that its tenant has created.
    - Objects without a tenant ("", created before there were keys) belong to `adopter` if it is set, else to
      the only tenant if there is just one. Otherwise only the admin key sees them.

    Args:
        keys: the server's keys; None: the server has no keys.
        adopter: tenant that owns objects without a tenant; None: no tenant is named.
    """

    def __init__(self, keys: Keyring | None = None, adopter: str | None = None) -> None:
        self._keys = keys if keys is not None and keys.has_keys else None
        self._adopter = adopter

    @property
    def tenant(self) -> str:
        """The tenant of the current request, which owns the objects that it creates."""
        return key_name.get()

    def visible(self) -> frozenset[str] | None:
        """Return the tenants whose objects the current request may see; None: all."""
        if self._keys is None or self.tenant == ADMIN:
            return None
        adopts = (
            self._keys.only_tenant == self.tenant if self._adopter is None else self.tenant == self._adopter
        )
        return frozenset({self.tenant, ""}) if adopts else frozenset({self.tenant})

    def may_see(self, tenant: str) -> bool:
        """Return whether the current request may see a tenant's objects."""
        visible = self.visible()
        return visible is None or tenant in visible

    def leaves_unowned(self) -> bool:
        """Return whether only the admin key sees objects without a tenant."""
        return self._keys is not None and self._adopter is None and self._keys.only_tenant is None


async def warn_of_unowned(files: FileStore, batches: BatchStore) -> None:
    """Log a warning if there are files or batches that belong to no tenant."""
    if await files.list(tenants=[""], limit=1) or await batches.list(tenants=[""], limit=1):
        logger.warning(
            "The storage has files or batches that belong to no tenant: they were made without a key, or by the only "
            "one. Now that there are several tenants, the admin key alone reaches them. To give them to one of these, "
            "start the server with --adopt-unowned NAME"
        )
