"""A step never waits for the device: no value is asked of it, and nothing is copied to it but from pinned memory.

The GPU's part is played by torch's device "meta", where tensors have no values: whoever asks for one gets an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention

from . import fake_flashinfer

Backend = type[FlashInferAttention]
GPU = torch.device("meta")
aten = torch.ops.aten


class WaitedError(AssertionError):
    """The host would have waited for the device."""


class Watch(TorchDispatchMode):
    """Raises WaitedError where the host would wait for the device; counts what is copied to it.

    Args:
        pinned: where pinned memory starts.
    """

    def __init__(self, pinned: set[int]) -> None:
        super().__init__()
        self.pinned = pinned
        self.num_copies = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if func is aten._local_scalar_dense.default and given[0].device == GPU:
            raise WaitedError(func)
        made = func(*args, **kwargs)
        if func in (aten._to_copy.default, aten.copy_.default):
            before = args[1] if func is aten.copy_.default else args[0]
            if before.device == GPU != made.device:
                raise WaitedError(f"copied to the host by {func}")
            if before.device != GPU == made.device:
                self.num_copies += 1
                if not (kwargs.get("non_blocking") or (len(args) > 2 and args[2])):
                    raise WaitedError(f"copied to the device by {func}, which waits")
                if before.untyped_storage().data_ptr() not in self.pinned:
                    raise WaitedError(f"copied to the device by {func} from memory that is not pinned")
        return made


@pytest.fixture
def watch(flashinfer: Backend, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Let the stand-in's kernels do nothing; return who watches all else."""
    monkeypatch.setattr(fake_flashinfer._Wrapper, "compute", lambda *args: None)
    kept = []  # or else the next tensor might lie at the same place
    watch = Watch(set())

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        watch.pinned.add(tensor.untyped_storage().data_ptr())
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return watch


def make_step(num_single: int, prompts: list[tuple[int, int]], page_size: int, static: bool) -> ForwardBatch:
    """Return a step on the device."""
    query_lens = np.array([1] * num_single + [new for new, _ in prompts], dtype=np.int64)
    kv_lens = np.array([5 + i for i in range(num_single)] + [whole for _, whole in prompts], dtype=np.int64)
    return ForwardBatch(
        positions=np.zeros(query_lens.sum(), dtype=np.int64),
        slots=torch.zeros(int(query_lens.sum()), dtype=torch.int64, device=GPU),
        query_lens=query_lens,
        kv_lens=kv_lens,
        rows=torch.zeros(len(query_lens), dtype=torch.int64, device=GPU),
        page_table=torch.zeros((9, 100), dtype=torch.int32, device=GPU),
        num_single=num_single,
        page_size=page_size,
        is_static=static,
    )


def build(
    flashinfer: Backend, page_size: int, stored_as: torch.dtype = torch.bfloat16
) -> FlashInferAttention:
    """Return a backend for two kinds of layers, on the device."""
    specs = [make_layer(index=0, head_dim=64), make_layer(index=1, head_dim=64, sliding_window=7)]
    scales = {1: (0.5, 0.1)} if stored_as != torch.bfloat16 else {}
    storage = KVStorage(specs, 500, page_size, torch.bfloat16, GPU, stored_as, scales)
    return flashinfer(specs, storage, flashinfer.Options())


def run(built: FlashInferAttention, batch: ForwardBatch) -> None:
    """Plan and compute a step."""
    built.plan(batch)
    num = int(batch.query_lens.sum())
    for layer in built.layers:
        query, key, value = (
            torch.zeros((num, heads, 64), dtype=torch.bfloat16, device=GPU) for heads in (4, 2, 2)
        )
        assert built.forward(query, key, value, layer, batch).device == GPU


@pytest.mark.parametrize("stored_as", [torch.bfloat16, torch.float8_e4m3fn], ids=["bf16", "fp8"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_steps_do_not_synchronize_with_the_device(
    flashinfer: Backend, watch: Watch, page_size: int, stored_as: torch.dtype
) -> None:
    built = build(flashinfer, page_size, stored_as)
    with watch:
        run(built, make_step(3, [(7, 9), (20, 20)], page_size, static=False))
        run(built, make_step(3, [], page_size, static=False))
        run(built, make_step(0, [(7, 9)], page_size, static=False))
    assert watch.num_copies > 0


@pytest.mark.parametrize("page_size", [1, 16])
def test_replays_do_not_synchronize_with_the_device(
    flashinfer: Backend, watch: Watch, page_size: int
) -> None:
    built = build(flashinfer, page_size)
    with watch:
        for size in (4, 4, 2):
            run(built, make_step(size, [], page_size, static=True))
    assert watch.num_copies > 0


@pytest.mark.parametrize(
    "waits",
    [
        lambda batch: batch.rows.cpu(),
        lambda batch: batch.rows.sum().item(),
        lambda batch: torch.zeros(3, dtype=torch.int32).pin_memory().to(GPU),
        lambda batch: torch.zeros(3, dtype=torch.int32).to(GPU, non_blocking=True),
        lambda batch: batch.rows.tolist(),
        lambda batch: torch.repeat_interleave(batch.rows, batch.rows),
    ],
)
def test_synchronization_is_detected(watch: Watch, waits: Any) -> None:
    batch = make_step(3, [], 1, static=False)
    with pytest.raises(Exception), watch:  # noqa: B017, PT011 (torch has an exception for each way)
        waits(batch)
