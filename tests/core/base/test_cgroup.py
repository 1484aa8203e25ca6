"""The limits of a container, on trees of files as Linux shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmfw.core.base.cgroup import MemoryLimit, memory_limit, num_cpus

GIB = 2**30
V1_UNLIMITED = 9223372036854771712


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def tree(root: Path, membership: str, files: dict[str, object]) -> Path:
    """Write /proc/self/cgroup, and files below /sys/fs/cgroup."""
    placed = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    for name, content in {"proc/self/cgroup": membership, **placed}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert num_cpus(tmp_path) == 8


def test_cached_files_of_a_container_are_free(tmp_path: Path) -> None:
    files = {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": f"anon 5\ninactive_file {GIB}"}
    assert memory_limit(tree(tmp_path, "0::/", files)) == MemoryLimit(4 * GIB, 2 * GIB)


def test_every_parent_group_counts(tmp_path: Path) -> None:
    """The lowest limit and the smallest rest may be those of different groups."""
    files = {
        "a/memory.max": 8 * GIB,
        "a/memory.current": 7 * GIB,
        "a/b/memory.max": "max",
        "a/b/c/memory.max": 4 * GIB,
        "a/b/c/memory.current": GIB,
    }
    assert memory_limit(tree(tmp_path, "0::/a/b/c", files)) == MemoryLimit(4 * GIB, GIB)


def test_memory_high_is_a_limit(tmp_path: Path) -> None:
    files = {"memory.max": 4 * GIB, "memory.high": 2 * GIB, "memory.current": GIB}
    assert memory_limit(tree(tmp_path, "0::/", files)) == MemoryLimit(2 * GIB, GIB)


def test_a_full_cgroup_has_no_memory_left(tmp_path: Path) -> None:
    files = {"memory.max": GIB, "memory.current": 2 * GIB}
    assert memory_limit(tree(tmp_path, "0::/", files)) == MemoryLimit(GIB, 0)


def test_cgroup_version_1_is_read(tmp_path: Path) -> None:
    files = {
        "memory/x/memory.limit_in_bytes": 4 * GIB,
        "memory/x/memory.usage_in_bytes": 2 * GIB,
        "memory/x/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
        "memory/memory.limit_in_bytes": V1_UNLIMITED,
        "cpu,cpuacct/x/cpu.cfs_quota_us": 150_000,
        "cpu,cpuacct/x/cpu.cfs_period_us": 100_000,
    }
    root = tree(tmp_path, "4:memory:/x\n2:cpu,cpuacct:/x\n0::/", files)
    assert memory_limit(root) == MemoryLimit(4 * GIB, 3 * GIB)
    assert num_cpus(root) == 2


def test_host_paths_in_a_container_are_resolved(tmp_path: Path) -> None:
    """Docker with version 1 shows the host's path in /proc, and the group's files at the top."""
    files = {"memory/memory.limit_in_bytes": GIB, "memory/memory.usage_in_bytes": 0}
    assert memory_limit(tree(tmp_path, "4:memory:/docker/0a1b", files)) == MemoryLimit(GIB, GIB)
    outside = tree(tmp_path / "b", "0::/../other", {"memory.max": 2 * GIB, "memory.current": 0})
    assert memory_limit(outside) == MemoryLimit(2 * GIB, 2 * GIB)


@pytest.mark.parametrize("text", ["max", "", "x", V1_UNLIMITED])
def test_invalid_numbers_mean_no_limit(tmp_path: Path, text: object) -> None:
    assert memory_limit(tree(tmp_path, "0::/\ngarbage", {"memory.max": text})) is None


@pytest.mark.parametrize(
    ("text", "count"), [("max 100000", 8), ("250000 100000", 3), ("1000 100000", 1), ("9900000 100000", 8)]
)
def test_cpu_quotas_limit_the_cpu_count(tmp_path: Path, text: str, count: int) -> None:
    assert num_cpus(tree(tmp_path, "0::/", {"cpu.max": text})) == count


def test_affinity_limits_the_cpu_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert num_cpus(tree(tmp_path, "0::/", {"cpu.max": "400000 100000"})) == 1
