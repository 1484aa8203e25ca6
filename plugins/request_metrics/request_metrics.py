"""The observer `request-metrics`: latencies, tokens and counts of requests, as metrics for Prometheus.

If vLLM has a metric, the name (with the prefix `llmfw_`) and the buckets are vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from prometheus_client import Metric

from llmfw.core import RequestEnded, RequestEvent, RequestFirstToken, RequestObserver, RequestStarted

from .label_counts import LabelCounts
from .series import Counts, Distribution

LABELS = ("model", "class")
"""Labels of all metrics: the served model, and "live" or "deferrable"."""

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PHASE = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8),
    *(
        1.0,
        1.5,
        2.0,
        2.5,
        5.0,
        10.0,
        15.0,
        20.0,
        30.0,
        40.0,
        50.0,
        60.0,
        120.0,
        240.0,
        480.0,
        960.0,
        1920.0,
        7680.0,
    ),
)
PER_TOKEN = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
TOKENS = tuple(float(mantissa * 10**power) for power in range(6) for mantissa in (1, 2, 5))

REFUSALS = {
    "OverloadedError": "queue_full",
    "TenantLimitError": "tenant_limit",
    "RateLimitError": "rate_limit",
    "NotReadyError": "not_ready",
    "EngineRestartingError": "engine_restarting",
    "EngineDeadError": "engine_dead",
    "DeadlineError": "timeout",
    "RequestError": "invalid",
    "ContextLengthError": "invalid",
    "GrammarCostError": "grammar_cost",
}
"""Maps the class of the error that ended a request before its first token to the reason of its refusal."""


class RequestMetrics(RequestObserver):
    """Counts the engine's requests, and keeps histograms. Keeps no data of single requests."""

    class Options(RequestObserver.Options, frozen=True):
        """
        Attributes:
            max_tenants: number of API keys' names that get metrics of their own; further ones are counted as
                "other". 0: no metrics by tenant.
            max_adapters: number of adapters that get metrics of their own; further ones are counted as "other".
                0: no metrics by adapter. Requests without an adapter have none.
        """

        max_tenants: Annotated[int, msgspec.Meta(ge=0)] = 0
        max_adapters: Annotated[int, msgspec.Meta(ge=0)] = 50

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._known: set[tuple[str, str]] = set()
        self._series: list[Counts | Distribution] = []
        self._tenants = LabelCounts("tenant", options.max_tenants) if options.max_tenants else None
        self._adapters = LabelCounts("adapter", options.max_adapters) if options.max_adapters else None

        def histogram(name: str, about: str, bounds: Sequence[float]) -> Distribution:
            made = Distribution(name, about, LABELS, bounds)
            self._series.append(made)
            return made

        def counter(name: str, about: str, *labels: str) -> Counts:
            made = Counts(name, about, (*LABELS, *labels))
            self._series.append(made)
            return made

        self._first_token = histogram(
            "llmfw_time_to_first_token_seconds", "Seconds from the start to the first token.", FIRST_TOKEN
        )
        self._whole = histogram(
            "llmfw_e2e_request_latency_seconds", "Seconds from the start to the end.", PHASE
        )
        self._queue = histogram("llmfw_request_queue_time_seconds", "Seconds in the engine's queue.", PHASE)
        self._prefill = histogram(
            "llmfw_request_prefill_time_seconds", "Seconds from the first step to the first token.", PHASE
        )
        self._decode = histogram(
            "llmfw_request_decode_time_seconds", "Seconds from the first token to the end.", PHASE
        )
        self._per_token = histogram(
            "llmfw_request_time_per_output_token_seconds",
            "Mean seconds between two tokens of a request.",
            PER_TOKEN,
        )
        self._prompt_tokens = histogram(
            "llmfw_request_prompt_tokens", "Tokens of the prompt of a request.", TOKENS
        )
        self._output_tokens = histogram(
            "llmfw_request_generation_tokens", "Tokens that a request generated.", TOKENS
        )
        self._started = counter(
            "llmfw_requests_started", "Requests for the engine, also those that are refused."
        )
        self._ended = counter(
            "llmfw_requests_finished",
            "Requests that have ended, by the reason of the end.",
            "finished_reason",
        )
        self._errors = counter(
            "llmfw_request_errors", "Requests that ended with an error, by its class.", "error"
        )
        self._admitted = counter(
            "llmfw_requests_admitted", "Requests that got their first token, or their vectors."
        )
        self._refused = counter(
            "llmfw_admission_rejections", "Requests that were refused before their first token.", "reason"
        )
        self._restarted = counter("llmfw_request_restarts", "Times that a request started over.")

    def observe(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            if isinstance(event, RequestEnded):
                self._note_end(event)
            elif isinstance(event, RequestFirstToken):
                self._note_first(event)
            elif isinstance(event, RequestStarted):
                labels = _labels(event)
                if labels not in self._known:
                    self._begin(labels)
                self._started.add(labels)

    def metrics(self) -> Iterable[Metric]:
        for counts in (self._tenants, self._adapters):
            if counts is not None:
                yield from counts.families()
        for each in self._series:
            yield each.family()

    def _begin(self, labels: tuple[str, str]) -> None:
        """Create the series of a model and class with the value 0.

        Otherwise, Prometheus could not see a counter's first increase.
        """
        self._known.add(labels)
        for finish in ("stop", "length", "abort", "error"):
            self._ended.add((*labels, finish), 0)
        for reason in set(REFUSALS.values()):
            self._refused.add((*labels, reason), 0)

    def _note_end(self, event: RequestEnded) -> None:
        labels = _labels(event.started)
        self._ended.add((*labels, event.finish))
        if event.error_kind:
            self._errors.add((*labels, event.error_kind))
        if event.first_token_s is None and event.error_kind in REFUSALS:
            self._refused.add((*labels, REFUSALS[event.error_kind]))
        if event.restarts:
            self._restarted.add(labels, event.restarts)
        if self._tenants is not None:
            # Only names of API keys become labels, because clients can choose any user name.
            self._tenants.note(event, event.started.tenant if event.started.tenant_is_key else "")
        if self._adapters is not None and event.started.adapter:
            self._adapters.note(event, event.started.adapter)
        if event.finish in ("stop", "length"):  # other requests ended early
            self._note_whole(event, labels)

    def _note_first(self, event: RequestFirstToken) -> None:
        if event.started is None:
            return
        labels = _labels(event.started)
        self._admitted.add(labels)
        self._first_token.add(labels, event.first_token_s)
        self._queue.add(labels, event.queued_s)
        self._prefill.add(labels, max(0.0, event.first_token_s - event.queued_s))

    def _note_whole(self, event: RequestEnded, labels: tuple[str, str]) -> None:
        self._whole.add(labels, event.duration_s)
        self._prompt_tokens.add(labels, event.started.prompt_tokens)
        if event.first_token_s is None:  # an embedding
            self._admitted.add(labels)
            return
        decode_s = max(0.0, event.duration_s - event.first_token_s)
        self._decode.add(labels, decode_s)
        self._output_tokens.add(labels, event.output_tokens)
        if event.output_tokens > 1:
            self._per_token.add(labels, decode_s / (event.output_tokens - 1))


def _labels(started: RequestStarted) -> tuple[str, str]:
    return started.model, "deferrable" if started.deferrable else "live"
