"""The settings say how many engines a server has, and what each has for itself."""

from __future__ import annotations

import pytest

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.pool import EnginePool
from llmfw.core.client.replicas.start import config_of, engine_client
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Registry

ENGINE = EngineConfig(model="m", random_seed=2**63 - 1, record_steps="steps", record_requests="r.jsonl")


async def test_one_engine_has_no_pool() -> None:
    configs: list[EngineConfig] = []

    def new_life(config: EngineConfig) -> ProcessEngineClient:
        configs.append(config)
        return ProcessEngineClient(config)

    client = engine_client(ENGINE, ServerConfig(served_model_name="m"), Registry([]), new_life)
    assert type(client) is SupervisedEngineClient
    assert configs == [ENGINE]


@pytest.mark.parametrize("count", [2, 3])
async def test_each_engine_has_its_place(count: int) -> None:
    configs: list[EngineConfig] = []

    def new_life(config: EngineConfig) -> ProcessEngineClient:
        configs.append(config)
        return ProcessEngineClient(config)

    client = engine_client(
        ENGINE, ServerConfig(served_model_name="m", replicas=count), load_plugins().registry, new_life
    )
    assert isinstance(client, EnginePool)
    assert [config.place for config in configs] == [ReplicaPlace(index, count) for index in range(count)]


def test_seeds_and_recordings_differ() -> None:
    configs = [config_of(ENGINE, ReplicaPlace(index, 256)) for index in range(256)]
    assert configs[0].random_seed == ENGINE.random_seed  # as with one engine
    assert len({config.random_seed for config in configs}) == 256
    assert (configs[7].record_steps, configs[7].record_requests) == ("steps.7", "r.jsonl.7")
    assert config_of(EngineConfig(model="m"), ReplicaPlace(1, 2)).record_steps is None


async def test_engines_share_what_is_planned_for_the_most() -> None:
    """Also while fewer run, so that one that is added takes nothing from them."""
    configs: list[EngineConfig] = []

    def new_life(config: EngineConfig) -> ProcessEngineClient:
        configs.append(config)
        return ProcessEngineClient(config)

    server = ServerConfig(served_model_name="m", replicas=1, max_replicas=3)
    client = engine_client(ENGINE, server, load_plugins().registry, new_life)
    assert isinstance(client, EnginePool)
    assert [config.place for config in configs] == [ReplicaPlace(0, 3)]
    with pytest.raises(ConfigError, match="--max-replicas is 2, and --replicas is 3"):
        ServerConfig(served_model_name="m", replicas=3, max_replicas=2)
