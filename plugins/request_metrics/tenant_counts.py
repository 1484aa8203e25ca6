"""Counts requests and tokens of a bounded number of tenants."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from llmfw.core import RequestEnded

from .series import Counts

OTHER = "other"
"""Label of the tenants beyond the bound. User names from clients, and missing names, count as "none"."""


class TenantCounts:
    """Counters by tenant. Only names of API keys become labels, because clients can choose any user name.

    Args:
        most: maximum number of names that become labels; the names that occur first do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._requests = Counts("llmfw_tenant_requests", "Requests that have ended.", ("tenant", "class"))
        self._tokens = Counts(
            "llmfw_tenant_tokens",
            "Tokens of requests that have ended: prompt, of them from the prefix cache, and output.",
            ("tenant", "class", "kind"),
        )

    def families(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._requests.family()
        yield self._tokens.family()

    def note(self, event: RequestEnded) -> None:
        """Count a request that has ended."""
        started = event.started
        labels = (
            self._label(started.tenant if started.tenant_is_key else ""),
            ("deferrable" if started.deferrable else "live"),
        )
        self._requests.add(labels)
        if event.first_token_s is None and event.finish not in ("stop", "length"):
            return  # the request was refused, or ended in the queue: nothing was computed
        for kind, num in (
            ("prompt", started.prompt_tokens),
            ("cached", event.cached_tokens),
            ("output", event.output_tokens),
        ):
            self._tokens.add((*labels, kind), num)

    def _label(self, tenant: str) -> str:
        if not tenant:
            return "none"
        if tenant not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(tenant)
        return tenant
