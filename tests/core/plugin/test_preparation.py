"""What parts may do before an engine's process needs them is begun for those that may be chosen, and stops nobody."""

from __future__ import annotations

import logging
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.preparation import begin_to_prepare
from llmfw.core.plugin.registry import Entry, Registry

Calls = list[tuple[str, EngineConfig, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was called, with what, in which thread."""
    found: Calls = []
    module: Any = ModuleType("prepared_parts")
    for name in ("one", "two", "unused"):
        setattr(
            module,
            name,
            lambda config, name=name: found.append((name, config, threading.current_thread().name)),
        )
    module.broken = lambda config: 1 / 0
    monkeypatch.setitem(sys.modules, "prepared_parts", module)
    return found


def entry(kind: str, name: str, function: str) -> Entry:
    return Entry(kind, name, "x:X", "plugin", "package", "1", prepare=f"prepared_parts:{function}")


def prepare(config: EngineConfig, *entries: Entry) -> threading.Thread | None:
    thread = begin_to_prepare(config, Registry(entries))
    if thread is not None:
        thread.join(30)
    return thread


def test_eligible_components_are_prepared_once_in_a_thread(calls: Calls) -> None:
    config = EngineConfig(model="m", attention="auto", module_passes="b, missing", policy="p")
    prepare(
        config,
        entry("attention", "a", "one"),
        entry("module_pass", "b", "one"),
        entry("policy", "p", "two"),
        entry("policy", "other", "unused"),
        entry("module_pass", "c", "unused"),
    )
    assert sorted(name for name, _, _ in calls) == ["one", "two"]
    assert all((given, thread) == (config, "llmfw-prepare") for _, given, thread in calls)


def test_unused_components_are_not_prepared(calls: Calls) -> None:
    config = EngineConfig(model="m", module_passes="none", attention="other")
    assert prepare(config, entry("module_pass", "b", "one"), entry("attention", "a", "two")) is None
    assert calls == []


def test_failed_preparations_are_logged_and_skipped(calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broken, lost = entry("attention", "a", "broken"), entry("attention", "b", "not_there")
    prepare(EngineConfig(model="m"), broken, lost, entry("attention", "c", "one"))
    assert [name for name, _, _ in calls] == ["one"]
    assert "Not prepared: prepared_parts:broken: ZeroDivisionError" in caplog.text
    assert "Not prepared: prepared_parts:not_there: AttributeError" in caplog.text


def test_bundled_native_code_has_valid_prepare_paths() -> None:
    registry = load_plugins().registry
    assert (
        registry.find("module_pass", "cpu-native").prepare == registry.find("attention", "cpu").prepare != ""
    )
