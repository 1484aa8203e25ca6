"""Facts about the installation and the machine, for bug reports. Imports no library for its version."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from llmfw.core.base.about import version
from llmfw.core.base.cgroup import memory_limit, num_cpus
from llmfw.core.plugin.installed_plugins import find_plugins
from llmfw.core.plugin.package_metadata import name_and_version
from llmfw.core.plugin.plugins import GROUP

PACKAGES = (
    *(
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "numpy",
        "msgspec",
        "litestar",
        "uvicorn",
        "httpx",
    ),
    *("pluggy", "xgrammar", "llguidance", "triton", "flashinfer-python"),
)
"""Packages whose versions matter for bugs, as far as they are installed."""


def versions() -> dict[str, str]:
    """Return the versions of llmfw, Python and PACKAGES; packages that are not installed are left out."""
    return {"llmfw": version(), "python": platform.python_version(), **dict(_packages())}


def plugins() -> dict[str, str]:
    """Return the installed plugins: name → package and version."""
    found = {}
    for entry_point in find_plugins(GROUP).entry_points:
        package = entry_point.dist
        found[entry_point.name] = "unknown" if package is None else " ".join(name_and_version(package))
    return found


def machine(root: Path = Path("/")) -> dict[str, Any]:
    """Return facts about the machine: system, processors, GPUs, and memory in bytes.

    Args:
        root: folder that holds proc and sys.
    """
    limit = memory_limit(root)
    memory = {name: int(kib) * 1024 for name, kib in _found(root / "proc/meminfo", r"^(\w+):\s*(\d+) kB")}
    return {
        "system": platform.platform(),
        "processor": next((name for _, name in _found(root / "proc/cpuinfo", r"^(model name)\s*: (.+)")), ""),
        "num_cpus": os.cpu_count(),
        "num_usable_cpus": num_cpus(root),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "memory_total": memory.get("MemTotal"),
        "memory_available": memory.get("MemAvailable"),
        "memory_limit": None if limit is None else limit.total,
        "memory_available_in_limit": None if limit is None else limit.available,
        "gpus": list(_gpus(root / "proc/driver/nvidia")),
        "gpu_driver": _text(root / "proc/driver/nvidia/version").partition("\n")[0],
    }


def free_disk(path: Path) -> int | None:
    """Return the free bytes of the disk of a folder; None if it cannot be read."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _gpus(driver: Path) -> Iterator[str]:
    for file in sorted((driver / "gpus").glob("*/information")):
        yield from (name.strip() for _, name in _found(file, r"^(Model):\s*(.+)"))


def _found(file: Path, pattern: str) -> list[tuple[str, str]]:
    return re.findall(pattern, _text(file), re.MULTILINE)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
