"""Says what it is that is measured: versions, the GPU, its free memory, which attention backends are there."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch
from lines import Line
from task import Task

from llmfw.core.plugin.plugins import load_plugins

PACKAGES = ("torch", "triton", "transformers", "numpy", "flashinfer-python", "apache-tvm-ffi", "msgspec")


def measure(task: Task) -> Iterator[Line]:
    """Look at the machine."""
    if task.sizes.device == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} finds no CUDA device; --dry runs on a CPU")
        free, total = torch.cuda.mem_get_info()
        properties = torch.cuda.get_device_properties(0)
        yield Line(
            "GPU",
            note=f"{properties.name}, sm_{properties.major}{properties.minor}, {free / 2**30:.1f} of "
            f"{total / 2**30:.1f} GiB free, driver {driver()}, CUDA {torch.version.cuda}",
        )
    else:
        yield Line("CPU", note=f"{platform.machine()}, {os.cpu_count()} cores: figures mean nothing here")
    versions = {name: found for name in PACKAGES if (found := installed(name))}
    told = ", ".join(f"{name} {found}" for name, found in versions.items())
    yield Line("versions", note=f"Python {platform.python_version()}, {told}", detail=versions)
    jit = "off" if os.environ.get("FLASHINFER_DISABLE_JIT") == "1" else "on"
    ready = "found" if importlib.util.find_spec("flashinfer_jit_cache") else "not found"
    yield Line("FlashInfer's kernels", note=f"compiled ahead: {ready}; compiling at run time: {jit}")
    plugins = load_plugins()
    backends = [
        f"{entry.name} (needs {', '.join(entry.missing())})" if entry.missing() else entry.name
        for entry in plugins.registry.entries("attention")
    ]
    yield Line("attention backends", note=", ".join(backends))
    for broken in plugins.broken:
        yield Line("broken plugin", failed=True, note=str(broken))


def installed(name: str) -> str | None:
    """Return a package's version, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def driver() -> str:
    """Return the version of the GPU's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
