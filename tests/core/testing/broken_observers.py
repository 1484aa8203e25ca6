"""Observers that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily

from llmfw.core import RequestEnded, RequestEvent, RequestFirstToken, RequestObserver, RequestStarted
from llmfw.core.testing import RequestObserverTests


class Broken(RequestObserver):
    """Does one thing wrong for each request that ended."""

    def observe(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            if isinstance(event, RequestEnded):
                self.ended(event)

    def ended(self, event: RequestEnded) -> None:
        """Take the end of a request."""


class RefusesErrors(Broken):
    def ended(self, event: RequestEnded) -> None:
        assert event.finish in ("stop", "length", "abort")


class RefusesEmbeddings(Broken):
    def ended(self, event: RequestEnded) -> None:
        assert event.started.max_tokens is not None


class WritesAscii(Broken):
    def ended(self, event: RequestEnded) -> None:
        io.TextIOWrapper(io.BytesIO(), "ascii").write(event.started.tenant)


class TakesOneEventACall(Broken):
    def observe(self, events: Sequence[RequestEvent]) -> None:
        assert len(events) < 500


class DividesByFirstToken(Broken):
    def ended(self, event: RequestEnded) -> None:
        if event.finish == "abort" and event.started.task == "generate":
            assert event.output_tokens / event.first_token_s  # type: ignore[operator]


class RepeatsAName(Broken):
    def metrics(self) -> Any:
        return [GaugeMetricFamily("requests", "Requests.", 1)] * 2


class KeepsTheList(Broken):
    kept: Sequence[RequestEvent] = ()

    def observe(self, events: Sequence[RequestEvent]) -> None:
        self.kept = events

    def close(self) -> None:
        assert self.kept is not None
        self.kept[-1]


class ClosesWhatItNeverOpened(Broken):
    file: io.BytesIO | None = None

    def ended(self, event: RequestEnded) -> None:
        self.file = self.file or io.BytesIO()

    def close(self) -> None:
        assert self.file is not None
        self.file.close()


class ComputesForLong(Broken):
    def ended(self, event: RequestEnded) -> None:
        sum(i * i for i in range(20_000))


class KeepsEveryRequest(Broken):
    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.kept: list[RequestEnded] = []

    def ended(self, event: RequestEnded) -> None:
        self.kept.append(event)


class KeepsFailures(Broken):
    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.failed: list[RequestEnded] = []

    def ended(self, event: RequestEnded) -> None:
        if event.finish == "error":
            self.failed.append(event)


class KeepsUntilTheFirstToken(Broken):
    """Forgets a request at its first token, which a refused request never has."""

    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.waiting: dict[str, RequestEvent] = {}

    def observe(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            if isinstance(event, RequestStarted):
                self.waiting[event.id] = event
            elif isinstance(event, RequestFirstToken):
                self.waiting.pop(event.id, None)


class KeepsTheLastList(Broken):
    """Keeps the list it is given, and never uses it again."""

    last: Sequence[RequestEvent] = ()

    def observe(self, events: Sequence[RequestEvent]) -> None:
        self.last = events


class KeepsEveryId(Broken):
    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.running: dict[str, RequestEvent] = {}

    def observe(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            if not isinstance(event, RequestEnded):
                self.running[event.id] = event


class LabelsUsers(Broken):
    """Has a series for each tenant, although users are tenants, too."""

    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.family = GaugeMetricFamily("requests", "Requests.", labels=["tenant"])

    def ended(self, event: RequestEnded) -> None:
        self.family = GaugeMetricFamily("requests", "Requests.", labels=["tenant"])
        self.family.add_metric([event.started.tenant], 1)

    def metrics(self) -> Any:
        return [self.family]


class CountsAborts(Broken):
    """Counts all ends, and is meant to count those that were not aborted."""

    def __init__(self, options: RequestObserver.Options) -> None:
        super().__init__(options)
        self.count = 0

    def ended(self, event: RequestEnded) -> None:
        self.count += 1


class OfKind(RequestObserverTests):
    kind: type[RequestObserver]

    @pytest.fixture
    def observer(self) -> RequestObserver:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def recorded(self) -> Callable[[Any], Any]:
        return lambda observer: getattr(observer, "count", None)

    @pytest.fixture
    def reference(self) -> Callable[[Sequence[RequestEvent]], Any] | None:
        return num_not_aborted if self.kind is CountsAborts else None


def num_not_aborted(events: Sequence[RequestEvent]) -> int:
    return sum(isinstance(event, RequestEnded) and event.finish != "abort" for event in events)


def test_class(kind: type[RequestObserver]) -> Any:
    """Return a test class for an observer."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
