"""Facts about machine and installation, from files that the test writes."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from llmfw.api.crashes.facts import machine, plugins, versions


def test_machine_facts_come_from_the_system_s_files(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:  1024 kB\n",
        "proc/cpuinfo": "processor : 0\nmodel name\t: Test CPU\nmodel name\t: Test CPU\n",
        "proc/driver/nvidia/version": "NVRM version: 570.1\nGCC version: 12\n",
        "proc/driver/nvidia/gpus/0000:01/information": "Model: \t\t NVIDIA H100\nIRQ: 5\nGPU UUID: GPU-1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = machine(tmp_path)
    assert (found["memory_total"], found["memory_available"]) == (2048 * 1024, 1024 * 1024)
    assert (found["processor"], found["gpus"]) == ("Test CPU", ["NVIDIA H100"])
    assert found["gpu_driver"] == "NVRM version: 570.1"


def test_a_machine_without_such_files_has_no_facts(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert (found["memory_total"], found["processor"], found["gpus"]) == (None, "", [])


def test_versions_are_those_of_the_installed_packages() -> None:
    assert versions()["msgspec"] == metadata.version("msgspec")
    assert plugins()["policies"].startswith("llmfw-engine ")
