"""The versions of llmfw and of what it runs on, as a metric family."""

from __future__ import annotations

import platform

from prometheus_client.core import InfoMetricFamily, Metric

from llmfw.core.base.about import version, version_of


def build_family() -> Metric:
    """Return the metric family."""
    labels = {
        "version": version(),
        "python": platform.python_version(),
        "torch": _version_of("torch"),
        "transformers": _version_of("transformers"),
    }
    return InfoMetricFamily("llmfw_build", "Versions, as labels; the value is always 1.", labels)


def _version_of(package: str) -> str:
    """Return the version of an installed package; "none" if only the engine's machine has it."""
    return version_of(package) or "none"
