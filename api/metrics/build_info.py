"""The versions of llmfw, of Python and of libraries, as a metric family."""

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
    """Return the version of a package; "none" if it is not installed on this machine."""
    return version_of(package) or "none"
