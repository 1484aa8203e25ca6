"""What the GPU script makes of a GPU's events, which stand-ins give here; and that its sizes fit together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Self

import pytest
import torch

from .gpu_script import gpu_script

CUDA, CPU = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU


@pytest.fixture(scope="module")
def timing() -> Iterator[ModuleType]:
    with gpu_script("timing") as (module,):
        yield module


def event(name: str, device: object, start: float, end: float) -> SimpleNamespace:
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=start, end=end))


class Profiler:
    """Stands in for torch's, with events in microseconds."""

    def __init__(self, events: list[SimpleNamespace]) -> None:
        self.events = lambda: events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_overlapping_kernels_are_counted_once(timing, monkeypatch):
    events = [
        event("gemm", CUDA, 100, 200),
        event("copy", CUDA, 150, 250),
        event("gemm", CUDA, 400, 500),
        event("launch", CPU, 0, 1000),
    ]
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: Profiler(events))
    found = timing.watch_kernels(lambda: None, torch.device("cuda"))
    assert (found.busy, found.count) == (pytest.approx(250e-6), 3)
    assert found.by_name == pytest.approx({"gemm": 200e-6, "copy": 100e-6})


def test_a_profiler_without_kernels_gives_nothing(timing, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: Profiler([]))
    assert timing.watch_kernels(lambda: None, torch.device("cuda")) is None


class Event:
    """Stands in for an event of CUDA: one goes through the queue in 4 ms."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return 4.0


def test_calls_share_the_time_between_events(timing, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    called: list[str] = []
    calls = [lambda: called.append("a"), lambda: called.append("b")]
    assert timing.median_seconds(calls, torch.device("cuda"), 4) == pytest.approx(0.001)
    assert called == ["a", "b"] + ["a", "b", "a", "b"] * timing.ROUNDS


@pytest.mark.parametrize("name", ["FULL", "DRY"])
def test_the_chosen_sizes_are_consistent(name):
    with gpu_script("sizes", "limits") as (sizes, limits):
        chosen = getattr(sizes, name)
        assert max(chosen.batches) * (chosen.prompt + chosen.output) <= chosen.kv_tokens
        assert all(n * (new + cached) <= chosen.kv_tokens for n, new, cached in chosen.prefills)
        assert max(new + cached for _, new, cached in chosen.prefills) < chosen.context
        most = max(*chosen.batches, *chosen.clients, *(requests for requests, _, _ in chosen.prefills))
        assert most <= chosen.most_running
        assert set(chosen.clients) <= set(chosen.batches), "what a server gives is compared with decode"
        if name == "FULL":
            held = {f"decode {n}" for n in chosen.batches} | {f"http {n}" for n in chosen.clients}
            assert held <= set(limits.GOALS)


def test_mini_sglang_receives_a_complete_tokenizer(tmp_path: Path):
    from transformers import AutoTokenizer

    with gpu_script("stages.peer_minisgl", "task") as (peer, task):
        folder = peer.model_with_tokenizer(task.Task(True, tmp_path))
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == vocab_size
    assert tokenizer.decode([vocab_size - 1]) == f"t{vocab_size - 1}"
