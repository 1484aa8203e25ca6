"""Replays a trace in virtual time: requests arrive at the trace's times, steps take the profile's times.

Uses no clock and no random numbers, so the same input gives bitwise the same output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from llmfw.core import SchedulePolicy
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.prompt_prefixes import NO_PREFIXES
from llmfw.core.client.replicas.dispatcher import Dispatcher
from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.core.schedule.cache.prefix_hash import block_size

from .ledger import Ledger
from .profile import Profile
from .replica import EngineSettings, Replica
from .routed import prefixes_of, routed_request
from .tokens import TokenIds, prompt_of
from .trace import TraceRequest


def replay(
    trace: Sequence[TraceRequest],
    settings: EngineSettings,
    profile: Profile,
    policies: Sequence[SchedulePolicy],
    *,
    router: IsolatedRouter | None = None,
    dispatcher: type[Dispatcher] = Dispatcher,
    speed: float = 1.0,
) -> Ledger:
    """Replay a trace; return the events of each request.

    Args:
        trace: requests in the order of arrival.
        settings: settings of each replica.
        profile: cost model of the steps.
        policies: one policy per replica; their number is the number of replicas.
        router: chooses the replica of each request; None: the replica with the fewest queued tokens.
        dispatcher: class that shows the replicas to the router.
        speed: number by which the trace's times are divided.
    """
    ledger = Ledger(len(trace))
    held = [request for request in trace if settings.holds(request)]
    max_len = max((request.prompt_len + request.max_tokens for request in held), default=1)
    prefixes = PrefixIndex() if len(policies) > 1 else None
    replicas = [
        Replica(index, settings, policy, profile, ledger, max_len, prefixes)
        for index, policy in enumerate(policies)
    ]
    routing = None if prefixes is None else dispatcher(router or IsolatedRouter(), prefixes)
    block = block_size(settings.page_size)
    for moment, arriving in groupby(held, key=lambda request: request.arrival_s / speed):
        now = moment + profile.per_request
        _advance_all(replicas, now)
        for request in arriving:
            prompt = prompt_of(request)
            ledger.arrived[request.number] = moment
            _chosen(replicas, routing, request, prompt, block).add(request, prompt, now)
        for replica in replicas:
            if replica.ends_at == math.inf and replica.scheduler.has_work:
                replica.advance(now)
    _advance_all(replicas, math.inf)
    for replica in replicas:
        replica.pages.check_nothing_leaked()
        ledger.num_retractions += replica.scheduler.num_retractions
    return ledger


def _chosen(
    replicas: Sequence[Replica],
    routing: Dispatcher | None,
    request: TraceRequest,
    prompt: TokenIds,
    block: int,
) -> Replica:
    """Return the replica of a request, which is counted there."""
    if routing is None:
        return replicas[0]
    prefixes = prefixes_of(request, prompt, block) if routing.router.needs_matches else NO_PREFIXES
    engines = [replica.routed.engine for replica in replicas if replica.routed is not None]
    engine, place = routing.enter(routed_request(request), prefixes, block, engines)
    replica = replicas[engine.index]
    assert replica.routed is not None
    replica.routed.enter(str(request.number), place)
    return replica


def _advance_all(replicas: Sequence[Replica], until: float) -> None:
    """Run all steps that end before `until`.

    A step that ends exactly at `until` is left running, so it ends after the requests' arrival. Replicas are
    independent between two arrivals, so each advances by itself.
    """
    for replica in replicas:
        while replica.ends_at < until:
            replica.advance(replica.ends_at)
