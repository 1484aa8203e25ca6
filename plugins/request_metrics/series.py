"""Counters and histograms of one thread, which are converted to families of prometheus_client at a scrape.

prometheus_client's own counters and histograms take a lock and walk the buckets in Python for each value: up to a
quarter of the time that the API process spends on a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]
"""Values of the labels, in the order of the names."""


class Counts:
    """A counter with labels.

    Args:
        name: name without "_total".
        about: description.
        names: names of the labels.
    """

    def __init__(self, name: str, about: str, names: Sequence[str]) -> None:
        self._name = name
        self._about = about
        self._names = names
        self._values: dict[Labels, int] = {}

    def add(self, labels: Labels, num: int = 1) -> None:
        """Add to a series, which starts with 0."""
        self._values[labels] = self._values.get(labels, 0) + num

    def family(self) -> Metric:
        """Return all series."""
        family = CounterMetricFamily(self._name, self._about, labels=self._names)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Distribution:
    """A histogram with labels.

    Args:
        name: name of the metric.
        about: description.
        names: names of the labels.
        bounds: inclusive upper bounds of the buckets, increasing; the last bucket has no bound.
    """

    def __init__(self, name: str, about: str, names: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self._names = names
        self._bounds = bounds
        self._series: dict[Labels, _Series] = {}

    def add(self, labels: Labels, value: float) -> None:
        """Add a value to a series."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self._bounds) + 1)
        series.counts[bisect_left(self._bounds, value)] += 1
        series.total += value

    def family(self) -> Metric:
        """Return all series."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._names)
        bounds = [floatToGoString(each) for each in (*self._bounds, float("inf"))]  # type: ignore[no-untyped-call]
        for labels, series in self._series.items():
            buckets = list(zip(bounds, accumulate(series.counts), strict=True))
            family.add_metric(labels, buckets, series.total)
        return family


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, num_buckets: int) -> None:
        self.counts = [0] * num_buckets
        self.total = 0.0
