"""Memory for the decoded images of all requests together, of which one tenant gets at most half."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from llmfw.core.base.errors import OverloadedError, RequestError, TenantLimitError

MAX_BYTES = 2 * 2**30
"""Most bytes of pixels that wait for the model's image processor."""


class PixelBudget:
    """Counts the pixels of the images that requests hold.

    Args:
        most: limit in bytes.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def share(self) -> int:
        """Most bytes of one tenant."""
        return self._most // 2

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._held.total()

    @contextmanager
    def holding(self, tenant: str) -> Iterator[PixelHold]:
        """Count the pixels of one request, until the block ends."""
        hold = PixelHold(self, tenant)
        try:
            yield hold
        finally:
            self._held[tenant] -= hold.size
            self._held += Counter()  # drops what is zero

    def add(self, tenant: str, size: int) -> None:
        """Count further bytes of a tenant.

        Raises:
            TenantLimitError: the tenant holds too many already.
            OverloadedError: all tenants together do.
        """
        if self._held[tenant] + size > self.share:
            raise TenantLimitError("your images that wait take up the memory for images; try again later")
        if self.used + size > self._most:
            raise OverloadedError(
                "the images of other requests take up the memory for images; try again later"
            )
        self._held[tenant] += size


class PixelHold:
    """The pixels of one request."""

    def __init__(self, budget: PixelBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self.size = 0

    def add(self, size: int) -> None:
        """Count further bytes.

        Raises:
            RequestError: the request has more than any may have.
            TenantLimitError, OverloadedError: as in `PixelBudget.add`.
        """
        if self.size + size > self._budget.share:
            raise RequestError(
                f"the request's images have more than {self._budget.share // 3} pixels together; scale them down",
                code="invalid_image",
            )
        self._budget.add(self._tenant, size)
        self.size += size
