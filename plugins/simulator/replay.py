"""Replays a trace in virtual time: requests arrive at the trace's times, steps take the profile's times.

Knows no clock and draws no random number: the same input gives the same output, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from llmfw.core import SchedulePolicy

from .ledger import Ledger
from .profile import Profile
from .replica import EngineSettings, Replica
from .routers import Router
from .tokens import prompt_of
from .trace import TraceRequest


def replay(
    trace: Sequence[TraceRequest],
    settings: EngineSettings,
    profile: Profile,
    policies: Sequence[SchedulePolicy],
    *,
    router: Router,
    speed: float = 1.0,
) -> Ledger:
    """Return what happened to each request.

    Args:
        trace: the requests, by arrival.
        policies: one policy for each replica; their number is the number of replicas.
        router: chooses the replica of each request.
        speed: divisor of the trace's times.
    """
    ledger = Ledger(len(trace))
    held = [request for request in trace if settings.holds(request)]
    max_len = max((request.prompt_len + request.max_tokens for request in held), default=1)
    replicas = [
        Replica(index, settings, policy, profile, ledger, max_len) for index, policy in enumerate(policies)
    ]
    for moment, arriving in groupby(held, key=lambda request: request.arrival_s / speed):
        now = moment + profile.per_request
        _advance_all(replicas, now)
        for request in arriving:
            prompt = prompt_of(request)
            ledger.arrived[request.number] = moment
            router(replicas, request, prompt).add(request, prompt, now)
        for replica in replicas:
            if replica.ends_at == math.inf and replica.scheduler.has_work:
                replica.advance(now)
    _advance_all(replicas, math.inf)
    for replica in replicas:
        replica.pages.check_nothing_leaked()
        ledger.num_retractions += replica.scheduler.num_retractions
    return ledger


def _advance_all(replicas: Sequence[Replica], until: float) -> None:
    """Run all steps that end before `until`. Steps that end exactly then see the requests that arrive then.

    Replicas are independent between two arrivals, so each one advances by itself.
    """
    for replica in replicas:
        while replica.ends_at < until:
            replica.advance(replica.ends_at)
