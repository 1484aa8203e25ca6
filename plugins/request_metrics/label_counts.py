"""Counts requests and tokens by a label with a bounded number of values: by tenant, or by adapter."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from llmfw.core import RequestEnded

from .series import Counts

OTHER = "other"
"""Value of the label for names beyond the bound."""
NONE = "none"
"""Value of the label for requests without a name."""


class LabelCounts:
    """Counters of requests that have ended, by a name that a request may have.

    Args:
        label: name of the label, and part of the counters' names: "tenant".
        most: maximum number of names that become labels; the names that occur first do.
    """

    def __init__(self, label: str, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._requests = Counts(f"llmfw_{label}_requests", "Requests that have ended.", (label, "class"))
        self._tokens = Counts(
            f"llmfw_{label}_tokens",
            "Tokens of requests that have ended: prompt, of them from the prefix cache, and output.",
            (label, "class", "kind"),
        )

    def families(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._requests.family()
        yield self._tokens.family()

    def note(self, event: RequestEnded, name: str) -> None:
        """Count a request that has ended.

        Args:
            name: the request's name; "": it has none.
        """
        started = event.started
        labels = self._label(name), "deferrable" if started.deferrable else "live"
        self._requests.add(labels)
        if event.first_token_s is None and event.finish not in ("stop", "length"):
            return  # the request was refused, or ended in the queue: nothing was computed
        for kind, num in (
            ("prompt", started.prompt_tokens),
            ("cached", event.cached_tokens),
            ("output", event.output_tokens),
        ):
            self._tokens.add((*labels, kind), num)

    def _label(self, name: str) -> str:
        if not name:
            return NONE
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name
