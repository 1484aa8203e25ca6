"""What is sent arrives as it was."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.step.device.staging import ALIGNMENT, Staging

DTYPES = ("int64", "int32", "float64", "float32", "bool")


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 9), st.integers(1, 3)), max_size=6))
def test_arrays_arrive_unchanged_despite_later_sends(shapes: list[tuple[str, int, int]]) -> None:
    staging = Staging(torch.device("cpu"), packs=True)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, shape).astype(dtype) for dtype, *shape in shapes]
    sent = staging.send(*arrays)
    staging.send(*[np.full(len(array) + 1, 9, dtype=np.int64) for array in arrays])
    for tensor, array in zip(sent, arrays, strict=True):
        assert torch.equal(tensor, torch.from_numpy(array))
        assert tensor.data_ptr() % ALIGNMENT == 0


def test_arrays_may_be_strided_and_large() -> None:
    staging = Staging(torch.device("cpu"), packs=True)
    whole = np.arange(30_000).reshape(100, 300)
    assert staging.send(whole[::3, 5:9])[0].tolist() == whole[::3, 5:9].tolist()
    assert staging.send(whole)[0].tolist() == whole.tolist()


def test_without_a_device_array_and_tensor_share_memory() -> None:
    array = np.zeros(3)
    [tensor] = Staging(torch.device("cpu")).send(array)
    array[1] = 5
    assert tensor[1] == 5
