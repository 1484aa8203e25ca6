"""Chooses a device and makes it current. Measures memory, limits threads and detects instructions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from llmfw.core.base.cgroup import memory_limit, num_cpus
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.replica_place import ReplicaPlace

ALONE = ReplicaPlace()


def choose_device(asked: str, place: ReplicaPlace = ALONE) -> torch.device:
    """Return the device to serve on; "auto" is a GPU if there is one, else the CPU.

    A GPU always has an index. "auto" and "cuda" mean torch's current GPU, which may differ between threads.
    If there are several engines, each engine has its own GPU, but all engines share the CPU. Engines of
    different models take the GPUs in turns, and share them if there are more models than GPUs.

    Raises:
        ConfigError: the name is invalid, the device does not exist on this machine, or there are fewer GPUs than engines.
    """
    device = _device(asked)
    if place.count == 1 or device.type == "cpu":
        return device
    if place.model:
        return device if ":" in asked else torch.device("cuda", place.gpu(torch.cuda.device_count()))
    return _gpu_of(place, asked)


def companions(asked: str, place: ReplicaPlace) -> Sequence[int]:
    """Return the indexes of the engines of other models whose weights are in the same memory.

    Args:
        asked: name of the device in the settings.
    """
    is_spread = _device(asked).type == "cuda" and ":" not in asked
    return place.companions(torch.cuda.device_count() if is_spread else None)


def _device(asked: str) -> torch.device:
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise ConfigError(f"device is {asked!r}; it must be auto, cpu, cuda, or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {asked!r}; llmfw serves on cpu and cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device is {asked!r}, but torch {torch.__version__} finds no CUDA device; choose cpu, or install a torch for this GPU"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device is {asked!r}, but there are {torch.cuda.device_count()} CUDA devices, from cuda:0; choose another"
        )
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _gpu_of(place: ReplicaPlace, asked: str) -> torch.device:
    if ":" in asked:
        raise ConfigError(
            f"--device is {asked}, one GPU, and --replicas is {place.count}; give cuda: each engine then has a GPU of its own"
        )
    if (found := torch.cuda.device_count()) < place.count:
        raise ConfigError(
            f"--replicas is {place.count}, and there are {found} GPUs; lower it, or give --device cpu"
        )
    return torch.device("cuda", place.index)


def use_device(device: torch.device) -> None:
    """Make a GPU the current one of this thread, until another is chosen. Does nothing for a CPU.

    Streams, events, pinned memory, Triton kernels and torch's memory statistics belong to the current GPU, which is
    the first one by default.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one of this thread in a block (see `use_device`). Does nothing for a CPU.

    An engine is built in such a block, and runs its steps in such a block. So a process may have several
    engines, and the thread that runs the steps may differ from the thread that built the engine.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def raise_if_lost(device: torch.device, error: Exception) -> None:
    """Raise a step's exception again if the GPU can no longer compute (for example, invalid address)."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError as another:
            raise error from another


def available_memory(device: torch.device, root: Path = Path("/")) -> int:
    """Return the memory that could be allocated now, in bytes; for a CPU, within the container's limit.

    Args:
        root: the folder that holds proc and sys.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limit = memory_limit(root)
    free = _free_bytes(root / "proc/meminfo")
    if free is None:
        free = total_memory(device, root)
    return free if limit is None else min(free, limit.available)


def total_memory(device: torch.device, root: Path = Path("/")) -> int:
    """Return the total memory of the device, in bytes; for a CPU, at most the container's limit.

    Args:
        root: the folder that holds proc and sys.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    limit = memory_limit(root)
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return size if limit is None else min(size, limit.total)


def use_threads(config: EngineConfig) -> None:
    """Set torch's threads to `--threads`; without it, limit them (see `limit_threads`)."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    else:
        limit_threads(place=config.place, num_ranks=config.tp)


def limit_threads(root: Path = Path("/"), place: ReplicaPlace = ALONE, num_ranks: int = 1) -> None:
    """Limit torch's threads to this process's share of the container's CPUs, unless OMP_NUM_THREADS is set.

    By default, torch starts one thread per core of the machine. If a limit on CPU time lets fewer threads
    run, the others are paused in the middle of a matrix product, and the running threads wait for them.

    Args:
        root: the folder that holds proc and sys.
        place: place among the engines that share the CPUs.
        num_ranks: number of processes that share the CPUs of the engine.
    """
    count = max(1, place.share(num_cpus(root)) // num_ranks)
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > count:
        torch.set_num_threads(count)


def _free_bytes(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    found = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return next(found, None)


def has_fast_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16 matrix products."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def gigabytes(count: float) -> str:
    """Format a size in bytes for the log, such as "1.50 GB". One GB is 2^30 bytes."""
    return f"{count / (1 << 30):.2f} GB"
