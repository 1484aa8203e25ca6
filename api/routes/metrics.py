"""GET /metrics: what the engine is, its figures, and what plugins' parts cost and how often they failed, for Prometheus.

Knows nothing of what the parts do. The engine is asked for its own figures; where it has ended, only the API's are told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.core.client.client import EngineClient
from llmfw.core.errors import EngineError
from llmfw.core.isolation.calls import PartLedger
from llmfw.core.request import EngineInfo, EngineStats, PartUse

from ..operation import describe

PATH = "/metrics"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S = 5.0  # with an engine in the middle of a long step

_HELP = {
    "llmfw_plugin_seconds_total": "Seconds that the calls of a plugin's part have taken.",
    "llmfw_plugin_calls_total": "Calls of a plugin's part.",
    "llmfw_plugin_failures_total": "Calls in which a plugin's part raised what it should not.",
}


class _Family(NamedTuple):
    """Figures of one name: labels → how each follows from what the engine tells of itself."""

    name: str
    kind: str
    help: str
    samples: Mapping[str, Callable[[EngineStats], int]]


_LIVE, _DEFERRABLE = '{class="live"}', '{class="deferrable"}'
_ENGINE = (
    _Family(
        "llmfw_running_requests",
        "gauge",
        "Requests that have a place in the engine's steps.",
        {
            _LIVE: lambda stats: stats.num_running - stats.num_deferrable_running,
            _DEFERRABLE: attrgetter("num_deferrable_running"),
        },
    ),
    _Family(
        "llmfw_waiting_requests",
        "gauge",
        "Requests that wait for a place.",
        {
            _LIVE: lambda stats: stats.num_waiting - stats.num_deferrable_waiting,
            _DEFERRABLE: attrgetter("num_deferrable_waiting"),
        },
    ),
    _Family(
        "llmfw_kv_tokens", "gauge", "Size of the KV storage in tokens.", {"": attrgetter("num_total_tokens")}
    ),
    _Family(
        "llmfw_kv_used_tokens",
        "gauge",
        "Tokens of the KV storage that running requests hold, shared ones counted once.",
        {"": attrgetter("num_used_tokens")},
    ),
    _Family(
        "llmfw_kv_cached_tokens",
        "gauge",
        "Tokens of the KV storage that the prefix cache has, in use or not.",
        {"": attrgetter("num_cached_tokens")},
    ),
    _Family(
        "llmfw_generated_tokens_total",
        "counter",
        "Tokens that were generated.",
        {"": attrgetter("num_generated_tokens")},
    ),
    _Family(
        "llmfw_retractions_total",
        "counter",
        "Times that a running request gave its memory to others.",
        {"": attrgetter("num_retractions")},
    ),
    _Family(
        "llmfw_drafted_tokens_total",
        "counter",
        "Tokens that a drafter guessed and the model checked.",
        {"": attrgetter("num_drafted_tokens")},
    ),
    _Family(
        "llmfw_accepted_tokens_total",
        "counter",
        "Guessed tokens that the model would have sampled, too.",
        {"": attrgetter("num_accepted_tokens")},
    ),
)


def metrics_routes(client: EngineClient, ledger: PartLedger) -> list[HTTPRouteHandler]:
    """Return the handlers.

    Args:
        ledger: of the parts in this process.
    """

    @get(PATH, opt=describe("Figures for Prometheus.", reply=str, media_type="text/plain"))
    async def metrics() -> ASGIApp:
        uses, text = ledger.uses(), restarts(client.num_restarts)
        with contextlib.suppress(EngineError, TimeoutError):
            stats = await asyncio.wait_for(client.stats(), PATIENCE_S)
            uses += stats.part_uses
            text += engine_info(client.info) + engine_figures(stats)
        return ASGIResponse(body=(exposition(uses) + text).encode(), media_type=MEDIA_TYPE)

    return [metrics]


def exposition(uses: Sequence[PartUse]) -> str:
    """Return the figures of parts as text. Those of one part in two processes are added."""
    samples: dict[str, dict[tuple[str, str, str], float]] = {name: {} for name in _HELP}
    for use in uses:
        part = (use.kind, use.name, use.plugin)
        for name, figure in zip(_HELP, (use.seconds, use.calls, use.failures), strict=True):
            samples[name][part] = samples[name].get(part, 0) + figure
    return "".join(line for name, figures in samples.items() for line in _family(name, figures))


def engine_info(info: EngineInfo) -> str:
    """Return what the engine is, as labels of a figure that is always 1."""
    labels = {
        "dtype": info.dtype,
        "quantization": info.quantization or "none",
        "kv_cache_dtype": info.kv_cache_dtype or "none",
        "attention": info.attention,
    }
    shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    name = "llmfw_engine_info"
    return f"# HELP {name} What the engine is, in labels.\n# TYPE {name} gauge\n{name}{{{shown}}} 1\n"


def restarts(num: int) -> str:
    """Return how often the engine was started again as text."""
    name = "llmfw_engine_restarts_total"
    help = "Times that the engine process was started again after it had died or hung."
    return f"# HELP {name} {help}\n# TYPE {name} counter\n{name} {num}\n"


def engine_figures(stats: EngineStats) -> str:
    """Return the figures of the engine as text."""
    return "".join(
        f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
        + "".join(f"{family.name}{labels} {figure(stats)}\n" for labels, figure in family.samples.items())
        for family in _ENGINE
    )


def _family(name: str, figures: Mapping[tuple[str, str, str], float]) -> Iterable[str]:
    yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} counter\n"
    for (kind, part, plugin), figure in sorted(figures.items()):
        yield f'{name}{{kind="{kind}",name="{_escaped(part)}",plugin="{_escaped(plugin)}"}} {figure:.9g}\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
