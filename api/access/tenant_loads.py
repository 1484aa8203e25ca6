"""Tracks the limits of tenants, and how much each tenant uses of its limits."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from llmfw.core.interfaces.tenant_limits import TenantLimits

from .keyring import Keyring
from .principals import Known
from .tenant_load import TenantLoad

MAX_TENANTS = 100_000
"""Maximum number of tenants of authenticators whose limits are kept; the one that was used least recently leaves."""


class TenantLoads:
    """The loads of tenants with limits.

    The limits of a tenant with API keys are those of its keys now. The limits of a tenant of an authenticator
    are the limits of its last principal. They also apply to its batches and background responses, which have
    no credentials. A server that has just started knows those of tenants with unfinished batches (`recall`).

    Args:
        keys: the server's keys.
        clock: monotonic clock in seconds.
    """

    def __init__(self, keys: Keyring, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._noted: OrderedDict[str, TenantLimits | None] = OrderedDict()
        self._loads: OrderedDict[str, TenantLoad] = OrderedDict()

    def note(self, client: Known) -> None:
        """Record the limits that an authenticator gives a client.

        Also records None, so that `recall` does not bring back limits that the authenticator has lifted.
        """
        self._noted[client.tenant] = client.limits
        _shrink(self._noted, client.tenant)

    def noted(self, tenant: str) -> TenantLimits | None:
        """Return the limits that an authenticator has given a tenant; None if there are none."""
        return self._noted.get(tenant)

    def recall(self, tenant: str, limits: TenantLimits | None) -> None:
        """Give a tenant the limits that it had before a restart, unless an authenticator has named it since."""
        if limits is not None and tenant not in self._noted:
            self._noted[tenant] = limits
            _shrink(self._noted, tenant)

    def of(self, tenant: str) -> TenantLoad | None:
        """Return the load of a tenant under its present limits; None if it has no limits."""
        if self._limits_of(tenant) is None:
            self._loads.pop(tenant, None)
            return None
        load = self._loads.get(tenant)
        if load is None:
            load = self._loads[tenant] = TenantLoad(tenant, lambda: self._limits_of(tenant), self._clock)
        load.refresh()
        _shrink(self._loads, tenant)
        return load

    async def ready(self, tenant: str) -> None:
        """Wait until a tenant's limits let another deferrable request start (see `TenantLoad.ready`)."""
        if (load := self.of(tenant)) is not None:
            await load.ready()

    def _limits_of(self, tenant: str) -> TenantLimits | None:
        return self._keys.limits_of(tenant) or self._noted.get(tenant)


def _shrink(kept: OrderedDict[str, Any], used: str) -> None:
    kept.move_to_end(used)
    if len(kept) > MAX_TENANTS:
        kept.popitem(last=False)
