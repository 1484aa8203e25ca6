"""Watches the operators that torch is asked for: how many, and which would wait for a device, had there been one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WAITING = {
    *(aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero),
    *(aten._unique2, aten.unique_dim, aten.lift_fresh, aten.bincount),
}


class Watching(TorchDispatchMode):
    """Counts operators, and notes those that would wait, but for those of the double of an attention backend.

    Attributes:
        num_operators: how many there were that compute something, and do not only look at a tensor otherwise.
        waits: which would have waited, and who asked for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_operators = 0
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_operators += not func.is_view
        picks = func.overloadpacket in (aten.index, aten.index_put_) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func.overloadpacket in WAITING or picks:
            frames = traceback.extract_stack()
            ours = next(f for f in reversed(frames) if "torch/" not in f.filename and f.filename != __file__)
            if "static_attention" not in ours.filename:
                self.waits.append(f"{func} by {ours.filename}:{ours.lineno}")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_other_copies() -> Iterator[None]:
    """Let nothing of the engine but `Staging` bring numbers from the host."""

    def guarded(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals["__name__"]
            assert not caller.startswith("llmfw.core"), f"{caller} calls {function.__name__}"
            return function(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("tensor", "from_numpy", "as_tensor"):
            patch.setattr(torch, name, guarded(getattr(torch, name)))
        yield
