"""Counts replies to HTTP requests by route and status, including refusals by middleware."""

from __future__ import annotations

from collections import Counter

from litestar.types import HTTPScope, Message
from prometheus_client.core import CounterMetricFamily, Metric

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

NO_ROUTE = "none"
"""Label of requests that reached no route: unknown paths, and requests that were refused before."""


class HTTPRequests:
    """Counts replies. Paths of clients never become labels: only the server's own routes do."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def note(self, scope: HTTPScope, message: Message) -> None:
        """Count a reply, given its start."""
        route: str = scope.get("path_template") or NO_ROUTE
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._counts[route, method, str(message["status"])] += 1  # type: ignore[typeddict-item]

    def family(self) -> Metric:
        """Return the metric family."""
        family = CounterMetricFamily(
            "llmfw_http_requests_total",
            "HTTP requests by route, method and status of the reply.",
            labels=("handler", "method", "status"),
        )
        for labels, num in sorted(self._counts.items()):
            family.add_metric(labels, num)
        return family
