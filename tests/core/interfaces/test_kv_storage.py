"""Where keys and values stand in a CPU's memory, and that index keys come back as they were stored."""

from __future__ import annotations

import itertools

import pytest
import torch

from llmfw.core.interfaces.kv_storage import LARGE_PAGE, LINE, KVStorage
from llmfw.core.testing.attention_case import make_layer

CPU = torch.device("cpu")


def storage(num_layers: int, num_pages: int) -> KVStorage:
    layers = [make_layer(index=i, head_dim=24, v_head_dim=40) for i in range(num_layers)]
    return KVStorage(layers, num_pages, 16, torch.bfloat16, CPU)


def test_keys_and_values_are_aligned_zeros() -> None:
    kept = storage(5, 7)
    for tensor, size in [*((k, 24) for k in kept.keys), *((v, 40) for v in kept.values)]:
        assert tensor.shape == (7, 16, 2, size)
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % LINE == 0
        assert not tensor.any()


def test_layers_cross_large_pages_at_different_tokens() -> None:
    kept = storage(10, 3)
    places = sorted(tensor.data_ptr() % LARGE_PAGE for tensor in (*kept.keys, *kept.values))
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert min(gaps) >= LARGE_PAGE // 20 - LINE


def test_no_tensor_overlaps_another() -> None:
    kept = storage(4, 3)
    stretches = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in (*kept.keys, *kept.values))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(stretches))


@pytest.mark.parametrize("stored_as", [torch.bfloat16, torch.float8_e4m3fn])
def test_index_keys_are_read_as_written(stored_as: torch.dtype) -> None:
    layers = [make_layer(index=0), make_layer(index=1, index_size=6)]
    kept = KVStorage(layers, 3, 4, torch.bfloat16, CPU, stored_as)
    assert list(kept.index_keys) == [1]
    new = torch.randn(2, 6).to(stored_as).to(torch.bfloat16)
    kept.write_index_keys(1, torch.tensor([9, 2]), new)
    read = kept.read_index_keys(1, torch.tensor([[2, 9], [9, 0]]))
    assert torch.equal(read, torch.stack([new.flip(0), torch.stack([new[0], torch.zeros_like(new[0])])]))
    assert sum(kept.num_bytes) == 12 * sum(layer.num_kv_elements for layer in layers) * stored_as.itemsize
