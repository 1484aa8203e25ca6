"""Converts the counts of images to metric families."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from llmfw.api.media.counts import ImageCounts
from llmfw.core.media.limits import REASONS

from .histogram_family import add_histogram


def image_families(counts: ImageCounts | None) -> Iterator[Metric]:
    """Yield the metric families of images; none if the server reads text only."""
    if counts is None:
        return
    yield CounterMetricFamily(
        "llmfw_images_accepted_total", "Images of requests that were read.", counts.accepted
    )
    refused = CounterMetricFamily(
        "llmfw_images_refused_total", "Images of requests that were refused, by reason.", labels=("reason",)
    )
    for reason in REASONS:
        refused.add_metric((reason,), counts.refused[reason])
    yield refused
    decoding = HistogramMetricFamily(
        "llmfw_image_decode_seconds", "Seconds that decoding an image took, without waiting."
    )
    add_histogram(decoding, (), counts.decoding)
    yield decoding
    fetching = HistogramMetricFamily(
        "llmfw_image_fetch_seconds", "Seconds that fetching an image from a URL took."
    )
    add_histogram(fetching, (), counts.fetching)
    yield fetching
