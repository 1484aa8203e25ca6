"""Which tenants' files, batches and responses a request may reach."""

from __future__ import annotations

import logging

from llmfw.api.text.terms import key_name
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore

from .key_table import ADMIN
from .keyring import Keyring

logger = logging.getLogger(__name__)


class Ownership:
    """The rule by which things belong to tenants. What a request may not see is, for it, not there.

    - Without API keys everyone sees everything.
    - With the admin key a request sees everything.
    - With another key it sees what its tenant has made.
    - What no tenant has made ("": before there were keys) belongs to the only tenant, if there is one alone, or to the
      one that the operator names; otherwise the admin key alone sees it.

    Args:
        keys: in force; None: there are none.
        adopter: the tenant to which things without a tenant belong.
    """

    def __init__(self, keys: Keyring | None = None, adopter: str | None = None) -> None:
        self._keys = keys if keys is not None and keys.has_keys else None
        self._adopter = adopter

    @property
    def tenant(self) -> str:
        """The tenant of the current request, to which belongs what it makes."""
        return key_name.get()

    def visible(self) -> frozenset[str] | None:
        """Return the tenants whose things the current request sees; None: all."""
        if self._keys is None or self.tenant == ADMIN:
            return None
        adopts = (
            self._keys.tenants == {self.tenant} if self._adopter is None else self.tenant == self._adopter
        )
        return frozenset({self.tenant, ""}) if adopts else frozenset({self.tenant})

    def may_see(self, tenant: str) -> bool:
        """Return whether the current request sees what belongs to a tenant."""
        visible = self.visible()
        return visible is None or tenant in visible

    def leaves_unowned(self) -> bool:
        """Return whether things without a tenant are for the admin key alone."""
        return self._keys is not None and self._adopter is None and len(self._keys.tenants) > 1


async def warn_of_unowned(files: FileStore, batches: BatchStore) -> None:
    """Log a warning if there are files or batches that belong to no tenant."""
    if await files.list(tenants=[""], limit=1) or await batches.list(tenants=[""], limit=1):
        logger.warning(
            "The storage has files or batches that belong to no tenant: they were made without a key, or by the only "
            "one. Now that there are several tenants, the admin key alone reaches them. To give them to one of these, "
            "start the server with --adopt-unowned NAME"
        )
