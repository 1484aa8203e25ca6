"""A restarted engine gets the adapters that the engine before it had."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from llmfw.api.admin.adapters import AdapterService
from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    LoadAdapter,
    PolicyInfo,
    UnloadAdapter,
)
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.adapter_memory import AdapterMemory
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ...doubles.tiny_adapters import save_random_adapter


class Engine:
    """An engine that loads each adapter by its second answer; those of the path "gone" fail.

    Args:
        adapters: name → path of those of its settings.
    """

    def __init__(self, **adapters: str) -> None:
        self.adapters = [AdapterInfo(name, path, 0, "ready") for name, path in adapters.items()]
        self.num_loads = 0

    async def ask(self, command: AdapterCommand) -> AdapterList:
        for i, each in enumerate(self.adapters):
            if each.state == "loading":
                state = ("failed", "no such folder") if each.path == "gone" else ("ready", "")
                self.adapters[i] = AdapterInfo(each.name, each.path, each.version, state[0], error=state[1])  # type: ignore[arg-type]
        if isinstance(command, LoadAdapter):
            self.num_loads += 1
            self.adapters.append(AdapterInfo(command.name, command.path, self.num_loads, "loading"))
        elif isinstance(command, UnloadAdapter):
            self.adapters = [each for each in self.adapters if each.name != command.name]
        return AdapterList(self.adapters)

    @property
    def ready(self) -> dict[str, str]:
        return {each.name: each.path for each in self.adapters if each.state == "ready"}


def listed(**adapters: str) -> AdapterList:
    return AdapterList([AdapterInfo(name, path, 1, "ready") for name, path in adapters.items()])


async def test_the_last_list_is_restored() -> None:
    memory, engine = AdapterMemory(), Engine(a="/a", b="/old", c="/c")
    memory.note(listed(x="/x"))
    memory.note(listed(a="/a", b="/b", d="/d"))
    memory.note(PolicyInfo("lpm"))
    await memory.restore(engine.ask)
    assert engine.ready == {"a": "/a", "b": "/b", "d": "/d"}
    assert engine.num_loads == 2


async def test_without_a_list_settings_stay() -> None:
    engine = Engine(a="/a")
    await AdapterMemory().restore(engine.ask)
    assert engine.ready == {"a": "/a"}


async def test_lost_adapters_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    memory, engine = AdapterMemory(), Engine()
    memory.note(listed(a="gone", b="/b"))
    await memory.restore(engine.ask)
    assert engine.ready == {"b": "/b"}
    assert "Adapter a is lost with the engine that ended: no such folder" in caplog.text


@pytest.mark.long
async def test_adapters_survive_an_engine_s_death(tmp_path: Path) -> None:
    """With a real engine process, which is killed; requests of the adapter get the same tokens afterwards."""
    base = resolve_model("demo", load_plugins().registry).path
    for seed in (0, 1):
        save_random_adapter(tmp_path / str(seed), Path(base), seed=seed, size=0.6)
    config = EngineConfig(model=base, dtype="float32", max_total_tokens=2048, max_adapters=2)
    client = SupervisedEngineClient(lambda: ProcessEngineClient(config))
    await client.start()

    async def tokens() -> list[int]:
        sampling = SamplingParams(temperature=0, max_tokens=12)
        request = Request(id=uuid.uuid4().hex, prompt=[5, 6, 7], sampling=sampling, adapter="a")
        return [token async for event in client.generate(request) for token in event.token_ids]

    service = AdapterService(client, ModelNames("demo", base))
    await service.load("a", str(tmp_path / "0"))
    first = await tokens()
    await service.load("a", str(tmp_path / "1"))
    second = await tokens()
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    assert await tokens() == second != first
    assert client.num_restarts == 1
    await client.close()
