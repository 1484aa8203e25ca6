"""A restarted engine gets the settings that are current when it takes requests, whatever changed while it started."""

from __future__ import annotations

from llmfw.core.base.control import (
    AdapterInfo,
    AdapterList,
    Answer,
    Command,
    ListAdapters,
    LoadAdapter,
    PolicyInfo,
    SetPolicy,
)
from llmfw.core.client.run_time_settings import RunTimeSettings


async def test_changes_while_adapters_load_are_applied() -> None:
    """Of the policy, and of the adapters while that policy is set."""
    settings = RunTimeSettings()
    policy, adapters = "fcfs", dict[str, str]()

    async def ask(command: Command) -> Answer:
        nonlocal policy
        if isinstance(command, SetPolicy):
            policy = command.name
            if policy == "lpm":
                settings.adapters.note(AdapterList([AdapterInfo("b", "/b", 1, "ready")]))
            return PolicyInfo(policy)
        if isinstance(command, LoadAdapter):
            adapters[command.name] = command.path
            if command.name == "a":
                settings.remember(SetPolicy("lpm"))
        elif not isinstance(command, ListAdapters):
            adapters.clear()
        return AdapterList([AdapterInfo(name, path, 1, "ready") for name, path in adapters.items()])

    settings.remember(SetPolicy("priority"))
    settings.adapters.note(AdapterList([AdapterInfo("a", "/a", 1, "ready")]))
    await settings.restore(ask)
    assert (policy, adapters) == ("lpm", {"b": "/b"})
