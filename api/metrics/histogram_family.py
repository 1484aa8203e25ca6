"""Converts the engine's and the ledger's histograms to metric families."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from llmfw.core.base.histogram import Histogram


def add_histogram(family: HistogramMetricFamily, labels: Sequence[str], found: Histogram) -> None:
    """Add a histogram to a family.

    Args:
        labels: values of the family's labels.
    """
    bounds = [*map(floatToGoString, found.bounds), "+Inf"]
    totals = itertools.accumulate(found.counts)
    family.add_metric(labels, list(zip(bounds, totals, strict=True)), found.seconds)
