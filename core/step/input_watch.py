"""Detects writes of a component to the inputs of a step.

Tensors cannot be made read-only. So the watch compares arrays on the host with copies after the step, and
reads torch's count of writes (`_version`) for tensors. It detects only writes by torch's operations to a
tensor: writes by a Triton kernel, through a numpy view, or during the replay of a CUDA graph go unnoticed.
"""

from __future__ import annotations

import numpy as np

from llmfw.core.base.step import Ints
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.plugin.returned import WrongReturnError

from .device.page_table import PageTable

HOST_FIELDS = ("positions", "query_lens", "kv_lens", "slots", "rows")
"""Fields of a batch that are arrays on the host; `slots` and `rows` only if they share memory with arrays."""


class InputWatch:
    """Copies the inputs of a step, and detects later writes to them. Takes a few microseconds in total.

    Args:
        batch: inputs of the step.
        page_table: the device's copy of the page table.
        shared: arrays on the host that share the memory of `batch.slots` and `batch.rows`; empty if none do.
    """

    __slots__ = ("_arrays", "_copy", "_num_writes", "_slots", "_table")

    def __init__(self, batch: ForwardBatch, page_table: PageTable, shared: tuple[Ints, ...] = ()) -> None:
        self._arrays = (batch.positions, batch.query_lens, batch.kv_lens, *shared)
        self._copy = _bytes_of(self._arrays)
        self._table = page_table
        self._slots = (
            None if shared or batch.slots.is_inference() else batch.slots
        )  # tensor whose writes torch counts
        self._num_writes = self._count_writes()

    def check(self) -> None:
        """Raise WrongReturnError if an input was written to.

        Before raising, restores the inputs on the host and the page table.
        """
        if self._count_writes() != self._num_writes or _bytes_of(self._arrays) != self._copy:
            written = ", ".join(f"batch.{name}" for name in self._restore())
            raise WrongReturnError(f"plan() or forward() wrote to {written}; it must copy what it changes")

    def _count_writes(self) -> tuple[int, int]:
        slots = self._slots
        return self._table.tensor._version, 0 if slots is None else slots._version

    def _restore(self) -> list[str]:
        """Restore the fields that were written to, if possible; return the names of these fields."""
        written, first = [], 0
        for name, array in zip(HOST_FIELDS, self._arrays, strict=False):
            right = np.frombuffer(self._copy, array.dtype, array.size, first)
            first += array.nbytes
            if not np.array_equal(array, right):
                array[:] = right
                written.append(name)
        table, slots = self._count_writes()
        if slots != self._num_writes[1]:
            written.append("slots or rows")
        if table != self._num_writes[0]:
            self._table.restore()
            written.append("page_table")
        return written


def _bytes_of(arrays: tuple[Ints, ...]) -> bytes:
    try:
        return b"".join(arrays)  # type: ignore[arg-type]  # the fastest way; arrays are buffers
    except TypeError:  # an array that is not contiguous
        return b"".join(array.tobytes() for array in arrays)
