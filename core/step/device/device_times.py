"""Measures how long a device computes pieces of work, without waiting for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from llmfw.core.base.histogram import Histogram


class DeviceTimes:
    """Adds the durations of pieces of work to a histogram, once the device has finished them.

    Args:
        device: device that computes the work.
        seconds: histogram of durations.
    """

    def __init__(self, device: torch.device, seconds: Histogram) -> None:
        self._is_cuda = device.type == "cuda"
        self._seconds = seconds
        self._open: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure the work that is launched on the current stream within the block."""
        if not self._is_cuda:
            begun = time.perf_counter()
            yield
            self._seconds.add(time.perf_counter() - begun)
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._open.append((begin, end))

    def collect(self) -> None:
        """Count the work that has finished since the last call."""
        while self._open and self._open[0][1].query():
            begin, end = self._open.popleft()
            self._seconds.add(begin.elapsed_time(end) / 1000)
