"""Limits the memory for the images of all requests together. One tenant gets at most half of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from llmfw.core.base.errors import OverloadedError, RequestError, TenantLimitError

MAX_BYTES = 2**30
"""Most bytes of images, as clients send them and as pixels, that wait to be decoded or for the model's processor."""


class ImageBudget:
    """Counts the bytes of the images that requests hold.

    Args:
        most: limit in bytes.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._held: Counter[str] = Counter()

    @property
    def share(self) -> int:
        """Maximum number of bytes of one tenant."""
        return self._most // 2

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._held.total()

    @contextmanager
    def holding(self, tenant: str) -> Iterator[ImageHold]:
        """Count the bytes of one request, until the block ends."""
        hold = ImageHold(self, tenant)
        try:
            yield hold
        finally:
            self._held[tenant] -= hold.size
            self._held += Counter()  # drops entries that are zero

    def add(self, tenant: str, size: int) -> None:
        """Count further bytes of a tenant.

        Raises:
            TenantLimitError: the tenant would hold more than its share.
            OverloadedError: all tenants together would hold more than the limit.
        """
        if self._held[tenant] + size > self.share:
            raise TenantLimitError("your images that wait take up the memory for images; try again later")
        if self.used + size > self._most:
            raise OverloadedError(
                "the images of other requests take up the memory for images; try again later"
            )
        self._held[tenant] += size


class ImageHold:
    """The bytes of one request's images."""

    def __init__(self, budget: ImageBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self.size = 0

    def add(self, size: int) -> None:
        """Count further bytes.

        Raises:
            RequestError: the request's images have more bytes than one tenant may hold.
            TenantLimitError, OverloadedError: as in `ImageBudget.add`.
        """
        if self.size + size > self._budget.share:
            raise RequestError(
                f"the request's images take more than {self._budget.share} bytes together, as files and as pixels; scale "
                "them down",
                code="invalid_image",
            )
        self._budget.add(self._tenant, size)
        self.size += size
