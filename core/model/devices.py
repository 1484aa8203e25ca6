"""What there is to know of a device before anything runs on it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from llmfw.core.base.errors import ConfigError


def choose_device(asked: str) -> torch.device:
    """Return the device to serve on; "auto" is a GPU if there is one."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
    except RuntimeError as error:
        raise ConfigError(f"device is {asked!r}; it must be auto, cpu, cuda, or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {asked!r}; llmfw serves on cpu and cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {asked!r}, but torch {torch.__version__} finds no CUDA device")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {asked!r}, but there are {torch.cuda.device_count()} CUDA devices")
    return device


def available_memory(device: torch.device) -> int:
    """Return the bytes that could be allocated now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return total_memory(device)


def total_memory(device: torch.device) -> int:
    """Return the bytes that the device has."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_fast_bfloat16() -> bool:
    """Return whether this CPU multiplies bfloat16 matrices with instructions of its own."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def gigabytes(count: float) -> str:
    """Return bytes as the log shows them."""
    return f"{count / (1 << 30):.2f} GB"
