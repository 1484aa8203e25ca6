"""What a CPU has, in a container and outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.model.device import devices
from llmfw.core.model.device.devices import available_memory, choose_device, limit_threads, total_memory

CPU = torch.device("cpu")
MIB = 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 1 GiB of which 512 MiB are free; its container may have 300 MiB and half a CPU, and has 100 MiB."""
    files = {
        "proc/meminfo": f"MemTotal: {MIB} kB\nMemFree: 1 kB\nMemAvailable: {512 * 1024} kB\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": f"{300 * MIB}\n",
        "sys/fs/cgroup/memory.current": f"{100 * MIB}\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_container_s_memory_is_its_limit(root: Path) -> None:
    assert total_memory(CPU, root) == 300 * MIB
    assert available_memory(CPU, root) == 200 * MIB


def test_the_machine_s_memory_bounds_the_limit(root: Path) -> None:
    (root / "sys/fs/cgroup/memory.max").write_text(f"{2**50}")
    assert available_memory(CPU, root) == 512 * MIB
    assert total_memory(CPU, root) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_without_proc_all_memory_counts_as_available(tmp_path: Path) -> None:
    assert available_memory(CPU, tmp_path) == total_memory(CPU, tmp_path) > 0


@pytest.mark.usefixtures("threads")
def test_threads_follow_the_container_s_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    limit_threads(root)
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    limit_threads(root)
    assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("threads")
def test_engines_share_the_container_s_threads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "num_cpus", lambda root: 5)
    found = []
    for index in range(2):
        torch.set_num_threads(6)
        limit_threads(root, ReplicaPlace(index, 2))
        found.append(torch.get_num_threads())
    assert found == [2, 3]


def test_each_engine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    places = [ReplicaPlace(index, 2) for index in range(2)]
    assert [str(choose_device("auto", place)) for place in places] == ["cuda:0", "cuda:1"]
    assert choose_device("cpu", places[1]) == CPU
    with pytest.raises(ConfigError, match="--replicas is 3, and there are 2 GPUs"):
        choose_device("cuda", ReplicaPlace(0, 3))
    with pytest.raises(ConfigError, match="--device is cuda:1, one GPU, and --replicas is 2"):
        choose_device("cuda:1", places[0])
