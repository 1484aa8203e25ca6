"""Creates the client of a server's engines, one or several, from the settings."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.plugin.registry import Registry

from ..launched import LaunchedEngineClient
from ..process import ProcessEngineClient
from ..quarantine import Witnesses
from ..request_progress import Continuations
from ..restarts import RestartPolicy
from ..supervisor import SupervisedEngineClient
from ..weights_swap import ServedWeights, WeightsSwap
from .isolated_router import build_router
from .pool import EnginePool
from .pool_members import Growth

NewLife = Callable[[EngineConfig], ProcessEngineClient]
"""Creates the client of one engine process."""

SEED_STEP = 0x9E3779B97F4A7C15
"""Distance between the seeds of two engines; odd, so that 2**63 engines have different seeds."""


def engine_client(
    engine: EngineConfig, server: ServerConfig, registry: Registry, new_life: NewLife
) -> LaunchedEngineClient:
    """Return the client of `--replicas` engines.

    The client can add engines up to `--max-replicas`. A server limited to one engine has no pool.

    Raises:
        ConfigError, ComponentError: as in `build_router`.
    """
    policy, count = RestartPolicy.of(server), max(server.replicas, server.max_replicas or 0)
    continuations = None if server.no_migrate else Continuations(engine.random_seed)
    if count == 1:
        swap = _swap(engine, engine.model, server, new_life)
        return SupervisedEngineClient(
            swap.new_life, policy, continuations=continuations, weights=swap, label=engine.place.label
        )
    witnesses, served = Witnesses(), ServedWeights(engine.model)
    router = build_router(registry, server.router, server.options)

    def new_client(index: int) -> SupervisedEngineClient:
        config = config_of(engine, ReplicaPlace(index, count))
        swap = _swap(config, served.path, server, new_life)
        return SupervisedEngineClient(swap.new_life, policy, witnesses=witnesses, weights=swap, label=index)

    clients = [new_client(index) for index in range(server.replicas)]
    growth = Growth(new_client, count)
    return EnginePool(
        clients,
        router,
        engine.max_tenant_requests,
        continuations=continuations,
        growth=growth,
        served=served if server.weights_from else None,
    )


def _swap(config: EngineConfig, path: str, server: ServerConfig, new_life: NewLife) -> WeightsSwap:
    """Return the checkpoint of an engine, at a path; only `--weights-from` allows to replace it."""

    def life_of(path: str) -> ProcessEngineClient:
        return new_life(msgspec.structs.replace(config, model=path))

    return WeightsSwap(life_of, path, is_fixed=server.weights_from is None)


def config_of(engine: EngineConfig, place: ReplicaPlace) -> EngineConfig:
    """Return the settings of one of several engines: its own place and recordings, and a replica's own seed."""
    seed = engine.random_seed + (place.index * SEED_STEP if place.is_replica else 0)
    return msgspec.structs.replace(
        engine,
        place=place,
        random_seed=seed % 2**63,
        record_requests=_file_of(engine.record_requests, place),
        record_steps=_file_of(engine.record_steps, place),
    )


def _file_of(path: str | None, place: ReplicaPlace) -> str | None:
    return None if path is None else f"{path}.{place.index}"
