"""Small traces, and engines to replay them on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.interfaces.router import Router
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.routers.load import Load
from llmfw.plugins.routers.prefix import Prefix
from llmfw.plugins.routers.round_robin import RoundRobin
from llmfw.plugins.routers.session import Session
from llmfw.plugins.simulator.ledger import Ledger
from llmfw.plugins.simulator.profile import Profile
from llmfw.plugins.simulator.replay import replay
from llmfw.plugins.simulator.replica import EngineSettings
from llmfw.plugins.simulator.trace import TraceRequest, read_trace

FLAT = Profile(name="flat", host=1.0, points=[(0, 0), (1, 0)])
"""Each step takes a second."""

ROUTERS: dict[str, type[Router]] = {
    "prefix": Prefix,
    "load": Load,
    "round-robin": RoundRobin,
    "session": Session,
}

ENGINE = EngineSettings(kv_tokens=4096, page_size=16, max_running=8, chunk=64)


def line(timestamp: float, hash_ids: list[int], output: int, **fields: Any) -> dict[str, Any]:
    """Return a request of whole blocks of 16 tokens."""
    length = fields.pop("input_length", 16 * len(hash_ids))
    return {
        "timestamp": timestamp,
        "input_length": length,
        "output_length": output,
        "hash_ids": hash_ids,
        "block_size": 16,
    } | fields


def write(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Write a trace."""
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def many(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return requests of a few families with common beginnings, which come about one a second."""
    rng = random.Random(seed)
    fresh = iter(range(100, 10**6))
    lines = []
    for _ in range(count):
        blocks = [rng.randrange(4)] * 1
        blocks += [next(fresh) for _ in range(rng.randrange(1, 6))]
        tenant = rng.choice("ab")
        lines.append(line(rng.uniform(0, 1000 * count), blocks, rng.randrange(1, 20), tenant=tenant))
    return lines


def replayed(
    trace: list[TraceRequest],
    engine: EngineSettings = ENGINE,
    *,
    policy: type[SchedulePolicy] = FCFS,
    num_replicas: int = 1,
    **settings: Any,
) -> Ledger:
    """Replay a trace first come, first served, unless told otherwise."""
    policies = [policy(policy.Options()) for _ in range(num_replicas)]
    chosen = {"profile": FLAT, "router": router("round-robin")} | settings
    return replay(trace, engine, policies=policies, **chosen)


def router(name: str) -> IsolatedRouter:
    """Return a bundled router, as a server has it."""
    kind = ROUTERS[name]
    return IsolatedRouter(kind(kind.Options()))


def read(folder: Path, lines: Iterable[dict[str, Any]]) -> list[TraceRequest]:
    """Write a trace and read it."""
    return read_trace(write(folder / "trace.jsonl", lines))
