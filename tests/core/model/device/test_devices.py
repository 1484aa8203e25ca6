"""What a CPU has, in a container and outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llmfw.core.model.device.devices import available_memory, limit_threads, total_memory

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
